//! A REST catalog in this process: as much of it as the client asks for, over a map. No server of one is to be had from the
//! package registries.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use iceberg::spec::{FormatVersion, Schema, TableMetadata, TableMetadataBuilder, UnboundPartitionSpec};
use iceberg::{TableCreation, TableRequirement, TableUpdate};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Default)]
struct State {
    namespaces: BTreeSet<String>,
    /// By `namespace.name`: the metadata and how often it was changed.
    tables: HashMap<String, (TableMetadata, u64)>,
    /// Answers to commits that are lost: the commit is made, and the client is told of a server's fault.
    losing: u32,
}

/// A running server; it ends with the process.
#[derive(Debug, Clone)]
pub struct Rest {
    pub uri: String,
    state: Arc<Mutex<State>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct NewTable {
    name: String,
    location: String,
    schema: Schema,
    partition_spec: Option<UnboundPartitionSpec>,
}

#[derive(Deserialize)]
struct Commit {
    requirements: Vec<TableRequirement>,
    updates: Vec<TableUpdate>,
}

type Answer = (&'static str, Value);

fn fault(status: &'static str, code: u16, what: &str) -> Answer {
    (status, json!({ "error": { "message": what, "type": what, "code": code } }))
}

impl Rest {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let rest = Self { uri, state: Arc::clone(&state) };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&state);
                std::thread::spawn(move || serve(&stream, &state));
            }
        });
        rest
    }

    /// Puts `metadata` in the place of that of a table.
    pub fn put(&self, table: &str, metadata: TableMetadata) {
        let mut state = self.state.lock().unwrap();
        let entry = state.tables.get_mut(table).unwrap();
        *entry = (metadata, entry.1 + 1);
    }

    /// Loses the answers to the next `n` commits.
    pub fn lose(&self, n: u32) {
        self.state.lock().unwrap().losing = n;
    }
}

fn serve(stream: &TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
        let mut words = line.split_whitespace().map(str::to_owned);
        let (method, target) = (words.next()?, words.next()?);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let path = target.split('?').next()?.trim_start_matches("/v1/").to_owned();
        let (status, answer) = state.lock().unwrap().answer(&method, &path, &body);
        let text = if method == "HEAD" || status.starts_with("204") { String::new() } else { answer.to_string() };
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", text.len());
        let mut stream = stream;
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(text.as_bytes()).ok()?;
    }
}

impl State {
    fn answer(&mut self, method: &str, path: &str, body: &[u8]) -> Answer {
        let parts: Vec<&str> = path.split('/').collect();
        match (method, &parts[..]) {
            ("GET", ["config"]) => ("200 OK", json!({ "defaults": {}, "overrides": {} })),
            ("HEAD", ["namespaces", name]) => {
                (if self.namespaces.contains(*name) { "204 No Content" } else { "404 Not Found" }, Value::Null)
            }
            ("POST", ["namespaces"]) => {
                let asked: Value = serde_json::from_slice(body).unwrap();
                let name = asked["namespace"][0].as_str().unwrap().to_owned();
                match self.namespaces.insert(name.clone()) {
                    true => ("200 OK", json!({ "namespace": [name], "properties": {} })),
                    false => fault("409 Conflict", 409, "AlreadyExistsException"),
                }
            }
            ("POST", ["namespaces", namespace, "tables"]) => {
                let asked: NewTable = serde_json::from_slice(body).unwrap();
                let name = format!("{namespace}.{}", asked.name);
                if self.tables.contains_key(&name) {
                    return fault("409 Conflict", 409, "AlreadyExistsException");
                }
                let creation = TableCreation::builder()
                    .name(asked.name)
                    .location(asked.location)
                    .schema(asked.schema)
                    .partition_spec_opt(asked.partition_spec)
                    .format_version(FormatVersion::V2)
                    .build();
                let metadata = TableMetadataBuilder::from_table_creation(creation).unwrap().build().unwrap().metadata;
                self.tables.insert(name.clone(), (metadata, 0));
                self.shown(&name)
            }
            (_, ["namespaces", namespace, "tables", table]) => {
                let name = format!("{namespace}.{table}");
                if !self.tables.contains_key(&name) {
                    return fault("404 Not Found", 404, "NoSuchTableException");
                }
                match method {
                    "GET" => self.shown(&name),
                    "DELETE" => {
                        self.tables.remove(&name);
                        ("204 No Content", Value::Null)
                    }
                    "POST" => self.commit(&name, serde_json::from_slice(body).unwrap()),
                    _ => fault("400 Bad Request", 400, "BadRequestException"),
                }
            }
            _ => fault("400 Bad Request", 400, "BadRequestException"),
        }
    }

    fn shown(&self, name: &str) -> Answer {
        let (metadata, changes) = &self.tables[name];
        let location = format!("{}/metadata/{changes:05}-{}.metadata.json", metadata.location(), metadata.uuid());
        ("200 OK", json!({ "metadata-location": location, "metadata": metadata, "config": {} }))
    }

    fn commit(&mut self, name: &str, commit: Commit) -> Answer {
        let (metadata, changes) = &self.tables[name];
        if commit.requirements.iter().any(|requirement| requirement.check(Some(metadata)).is_err()) {
            return fault("409 Conflict", 409, "CommitFailedException");
        }
        let mut builder = metadata.clone().into_builder(None);
        for update in commit.updates {
            builder = update.apply(builder).unwrap();
        }
        let changed = (builder.build().unwrap().metadata, changes + 1);
        self.tables.insert(name.to_owned(), changed);
        if self.losing > 0 {
            self.losing -= 1;
            return fault("504 Gateway Timeout", 504, "CommitStateUnknownException");
        }
        self.shown(name)
    }
}
