// Azurite's blobs for the tests: starts it on a free port of the loopback, makes the container `lakemark`, says where it
// is. It ends when its stdin does. Its one argument is the folder in which npm installed Azurite.

import { spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { createServer } from "node:net";
import { join } from "node:path";

const ACCOUNT = "devstoreaccount1";
// Azurite's own, published key.
const KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

const freePort = () =>
  new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

async function makeContainer(endpoint) {
  const date = new Date().toUTCString();
  const headers = `x-ms-date:${date}\nx-ms-version:2021-12-02\n`;
  const text = `PUT\n\n\n\n\n\n\n\n\n\n\n\n${headers}/${ACCOUNT}/${ACCOUNT}/lakemark\nrestype:container`;
  const signature = createHmac("sha256", Buffer.from(KEY, "base64")).update(text, "utf8").digest("base64");
  const answer = await fetch(`${endpoint}/lakemark?restype=container`, {
    method: "PUT",
    headers: {
      "x-ms-date": date,
      "x-ms-version": "2021-12-02",
      Authorization: `SharedKey ${ACCOUNT}:${signature}`,
    },
  });
  if (answer.status !== 201) throw new Error(`no container: ${answer.status} ${await answer.text()}`);
}

const port = await freePort();
const program = join(process.argv[2], "node_modules/azurite/dist/src/blob/main.js");
const options = ["--blobHost", "127.0.0.1", "--blobPort", port, "--inMemoryPersistence", "--disableTelemetry"];
const azurite = spawn(process.execPath, [program, ...options, "--skipApiVersionCheck", "--silent"], {
  stdio: ["ignore", "ignore", "inherit"],
});
const end = () => azurite.kill("SIGKILL");
process.on("exit", end);
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(1));
azurite.on("exit", (code) => process.exit(code ?? 1));
const endpoint = `http://127.0.0.1:${port}/${ACCOUNT}`;
for (let left = 150; ; left--) {
  try {
    await makeContainer(endpoint);
    break;
  } catch (error) {
    if (left === 0 || String(error).includes("no container")) throw error;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
console.log(endpoint);
process.stdin.on("end", () => process.exit(0)).resume();
