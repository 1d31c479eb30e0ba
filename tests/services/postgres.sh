#!/bin/sh
# A PostgreSQL server on the loopback for the tests, with data that nothing else uses: `postgres.sh BIN PORT CERTIFICATE`.
#
# BIN holds `initdb` and `postgres`; CERTIFICATE is written, for clients that check the server. The password of the user
# `lakemark` is in PGPASSWORD. Says its URL on stdout when it is ready, and ends with its stdin. Since PostgreSQL does not
# run as root, root runs it as the user `postgres`.
set -eu
bin=$1 port=$2 certificate=$3

cd /
as=
folder=$(mktemp -d "${TMPDIR:-/tmp}/lakemark-postgres.XXXXXX")
server=
end() {
    if [ -n "$server" ]; then
        kill -INT "$server" 2> /dev/null || true
        wait "$server" 2> /dev/null || true
    fi
    rm -rf "$folder"
}
trap end EXIT
trap 'exit 1' INT TERM HUP

printf '%s\n' "$PGPASSWORD" > "$folder/password"
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -keyout "$folder/server.key" -out "$folder/server.crt" \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
    2> /dev/null
chmod 600 "$folder/server.key" "$folder/password"
cp "$folder/server.crt" "$certificate"
if [ "$(id -u)" = 0 ]; then
    as='setpriv --reuid postgres --regid postgres --clear-groups'
    chown -R postgres "$folder"
fi

$as "$bin/initdb" --pgdata "$folder/data" --username lakemark --auth scram-sha-256 --pwfile "$folder/password" \
    --encoding UTF8 --locale C --no-sync > "$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
$as "$bin/postgres" -D "$folder/data" -p "$port" -k "$folder" -h 127.0.0.1 -c fsync=off \
    -c ssl=on -c "ssl_cert_file=$folder/server.crt" -c "ssl_key_file=$folder/server.key" >> "$folder/log" 2>&1 &
server=$!

tries=0
until "$bin/pg_isready" -q -h 127.0.0.1 -p "$port"; do
    tries=$((tries + 1))
    if [ "$tries" -gt 300 ] || ! kill -0 "$server" 2> /dev/null; then
        cat "$folder/log" >&2
        exit 1
    fi
    sleep 0.2
done
echo "postgres://lakemark@127.0.0.1:$port/postgres"
cat > /dev/null
