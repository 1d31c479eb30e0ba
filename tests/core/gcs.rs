//! A stand-in for Google Cloud Storage: as much of its XML interface as object_store's client speaks, in this process.
//! No server for tests keeps its preconditions, so this one does, over memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// How many keys one answer of a listing has: few, so that pages are turned.
const PAGE: usize = 5;

struct Object {
    bytes: Vec<u8>,
    generation: u64,
}

#[derive(Default)]
struct State {
    /// By bucket and key, decoded.
    objects: BTreeMap<String, Object>,
    uploads: HashMap<String, BTreeMap<u32, Vec<u8>>>,
    clock: u64,
}

/// A running server; it ends with the process.
pub struct Gcs {
    pub endpoint: String,
}

struct Request {
    method: String,
    path: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Answer {
    status: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Of an answer without a body.
    length: Option<usize>,
}

impl Answer {
    fn new(status: &'static str) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), length: None }
    }

    fn xml(body: String) -> Self {
        Self { body: body.into_bytes(), ..Self::new("200 OK") }.with("Content-Type", "application/xml".into())
    }

    fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl Gcs {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&state);
                std::thread::spawn(move || serve(&stream, &state));
            }
        });
        Self { endpoint }
    }
}

/// Answers the requests of one connection, one after another.
fn serve(stream: &TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let request = read(&mut reader)?;
        let answer = state.lock().unwrap().answer(&request);
        let mut out = format!("HTTP/1.1 {}\r\n", answer.status);
        for (name, value) in &answer.headers {
            let _ = write!(out, "{name}: {value}\r\n");
        }
        let _ = write!(out, "Content-Length: {}\r\n\r\n", answer.length.unwrap_or(answer.body.len()));
        let mut stream = stream;
        stream.write_all(out.as_bytes()).ok()?;
        stream.write_all(&answer.body).ok()?;
    }
}

fn read(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let query = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (decode(k), decode(v)));
    Some(Request { method, path: decode(path.trim_start_matches('/')), query: query.collect(), headers, body })
}

fn decode(text: &str) -> String {
    let text = text.replace('+', "%20");
    percent_encoding::percent_decode_str(&text).decode_utf8().unwrap().into_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl State {
    fn answer(&mut self, request: &Request) -> Answer {
        let Request { method, path, query, headers, .. } = request;
        match (method.as_str(), query.get("uploadId")) {
            ("PUT", Some(upload)) => self.put_part(upload, request),
            ("POST", Some(upload)) => self.complete(upload, path, &request.body),
            ("DELETE", Some(upload)) => {
                let known = self.uploads.remove(upload).is_some();
                Answer::new(if known { "204 No Content" } else { "404 Not Found" })
            }
            ("POST", None) if query.contains_key("uploads") => self.begin_upload(),
            ("PUT", None) => {
                let must_be_new = headers.get("x-goog-if-generation-match").is_some_and(|generation| generation == "0");
                if must_be_new && self.objects.contains_key(path) {
                    return Answer::new("412 Precondition Failed");
                }
                let generation = self.put(path, request.body.clone());
                Answer::new("200 OK")
                    .with("ETag", format!("\"{generation}\""))
                    .with("x-goog-generation", generation.to_string())
            }
            ("GET", None) if query.contains_key("list-type") => self.list(path, query),
            ("GET" | "HEAD", None) => self.get(request),
            ("DELETE", None) => {
                let known = self.objects.remove(path).is_some();
                Answer::new(if known { "204 No Content" } else { "404 Not Found" })
            }
            _ => Answer::new("501 Not Implemented"),
        }
    }

    fn put(&mut self, path: &str, bytes: Vec<u8>) -> u64 {
        self.clock += 1;
        let object = Object { bytes, generation: self.clock };
        self.objects.insert(path.to_owned(), object);
        self.clock
    }

    fn get(&self, request: &Request) -> Answer {
        let Some(object) = self.objects.get(&request.path) else { return Answer::new("404 Not Found") };
        let etag = format!("\"{}\"", object.generation);
        if request.headers.get("if-match").is_some_and(|wanted| *wanted != etag) {
            return Answer::new("412 Precondition Failed");
        }
        let size = object.bytes.len();
        let range = request.headers.get("range").and_then(|range| range.strip_prefix("bytes="));
        let (status, range) = match range.map(|range| range.split_once('-').unwrap()) {
            None => ("200 OK", 0..size),
            Some(("", last)) => ("206 Partial Content", size.saturating_sub(last.parse().unwrap())..size),
            Some((first, last)) => {
                let (first, last) = (first.parse().unwrap(), last.parse().map_or(size, |last: usize| last + 1));
                if first >= size {
                    return Answer::new("416 Range Not Satisfiable");
                }
                ("206 Partial Content", first..last.min(size))
            }
        };
        let mut answer = Answer::new(status)
            .with("ETag", etag)
            .with("x-goog-generation", object.generation.to_string())
            .with("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT".into());
        if status.starts_with("206") {
            let shown = format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1));
            answer = answer.with("Content-Range", shown);
        }
        if request.method == "HEAD" {
            answer.length = Some(size);
        } else {
            answer.body = object.bytes[range].to_vec();
        }
        answer
    }

    fn list(&self, bucket: &str, query: &BTreeMap<String, String>) -> Answer {
        let empty = String::new();
        let of = |name: &str| query.get(name).unwrap_or(&empty).as_str();
        let (prefix, delimiter) = (of("prefix"), of("delimiter"));
        let after = of("continuation-token").max(of("start-after"));
        let (mut body, mut folders, mut found) = (String::from("<ListBucketResult>"), BTreeSet::new(), 0);
        let (mut last, mut more) = ("", false);
        let keys = self.objects.iter().filter_map(|(path, object)| {
            let key = path.strip_prefix(bucket)?.strip_prefix('/')?;
            (key.starts_with(prefix) && key > after).then_some((key, object))
        });
        for (key, object) in keys {
            let folder = key[prefix.len()..].split_once('/').filter(|_| !delimiter.is_empty());
            let folder = folder.map(|(name, _)| format!("{prefix}{name}/"));
            let told = folder.as_ref().is_some_and(|folder| after.starts_with(folder) || folders.contains(folder));
            if !told && found == PAGE {
                more = true;
                break;
            }
            last = key;
            if told {
                continue;
            }
            found += 1;
            if let Some(folder) = folder {
                let _ = write!(body, "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", escape(&folder));
                folders.insert(folder);
            } else {
                let (key, size, generation) = (escape(key), object.bytes.len(), object.generation);
                let _ = write!(
                    body,
                    "<Contents><Key>{key}</Key><Size>{size}</Size><LastModified>2024-01-01T00:00:00Z</LastModified>\
                     <ETag>\"{generation}\"</ETag></Contents>"
                );
            }
        }
        if more {
            let _ = write!(body, "<NextContinuationToken>{}</NextContinuationToken>", escape(last));
        }
        body.push_str("</ListBucketResult>");
        Answer::xml(body)
    }

    fn begin_upload(&mut self) -> Answer {
        self.clock += 1;
        let upload = format!("upload-{}", self.clock);
        self.uploads.insert(upload.clone(), BTreeMap::new());
        Answer::xml(format!(
            "<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
        ))
    }

    fn put_part(&mut self, upload: &str, request: &Request) -> Answer {
        let Some(parts) = self.uploads.get_mut(upload) else { return Answer::new("404 Not Found") };
        let number = request.query["partNumber"].parse().unwrap();
        parts.insert(number, request.body.clone());
        Answer::new("200 OK").with("ETag", format!("\"part-{number}\""))
    }

    fn complete(&mut self, upload: &str, path: &str, body: &[u8]) -> Answer {
        let named = String::from_utf8_lossy(body).matches("<PartNumber>").count();
        match self.uploads.get(upload) {
            Some(parts) if parts.len() == named => {}
            Some(_) => return Answer::new("400 Bad Request"),
            None => {
                let body = "<Error><Code>NoSuchUpload</Code></Error>".into();
                return Answer { status: "404 Not Found", ..Answer::xml(body) };
            }
        }
        let parts = self.uploads.remove(upload).unwrap_or_default();
        let generation = self.put(path, parts.into_values().flatten().collect());
        let body =
            format!("<CompleteMultipartUploadResult><ETag>\"{generation}\"</ETag></CompleteMultipartUploadResult>");
        Answer::xml(body).with("x-goog-generation", generation.to_string())
    }
}
