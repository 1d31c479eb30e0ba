//! The columns of a file of CSV or JSON, told from all of its values as they pass. DataFusion holds a whole JSON file to tell
//! them, and tells those of CSV part by part, as if no value with a line break were ever cut.

use std::io::{self, BufRead, Read};

use bytes::{Buf, Bytes};
use datafusion::arrow::csv::reader::Format;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::reader::infer_json_schema;
use futures::StreamExt;
use futures::stream::BoxStream;
use lakemark::{Error, ErrorKind, Result};
use tokio::sync::{mpsc, oneshot};

/// How many parts of a file wait to be looked through.
const WAITING: usize = 2;

/// The schema of a file of one JSON object a line.
///
/// # Errors
/// Those of `content`; [`Invalid`](lakemark::ErrorKind::Invalid) when it is no such file.
pub(crate) async fn json_schema(content: BoxStream<'static, Result<Bytes>>) -> Result<Schema> {
    look(content, |parts| infer_json_schema(parts, None).map(|(schema, _)| schema)).await
}

/// The schema of a CSV file that is written as `format` says.
///
/// # Errors
/// As [`json_schema`].
pub(crate) async fn csv_schema(content: BoxStream<'static, Result<Bytes>>, format: Format) -> Result<Schema> {
    look(content, move |parts| format.infer_schema(parts, None).map(|(schema, _)| schema)).await
}

async fn look(
    mut content: BoxStream<'static, Result<Bytes>>,
    infer: impl FnOnce(Parts) -> std::result::Result<Schema, ArrowError> + Send + 'static,
) -> Result<Schema> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let (tell, told) = oneshot::channel();
    // A thread of its own: of the runtime's, as many looks could wait as there are, and reading a disk needs one, too.
    let look = move || {
        // Nobody waits for it where the file could not be read.
        let _ = tell.send(infer(Parts { receiver, part: Bytes::new() }));
    };
    let thread = std::thread::Builder::new().name("lakemark-look".to_owned()).spawn(look);
    thread.map_err(|e| Error::new(ErrorKind::Unavailable, "no thread can be started").caused_by(e))?;
    while let Some(part) = content.next().await {
        // An error here, or the caller's end, ends the look too: the sender is dropped.
        if sender.send(part?).await.is_err() {
            break;
        }
    }
    drop(sender);
    match told.await {
        Ok(Ok(schema)) => Ok(schema),
        Ok(Err(error)) => Err(Error::invalid(format!("its columns cannot be told: {error}"))),
        Err(_) => Err(Error::invalid("its columns cannot be told: the look at its values panicked")),
    }
}

/// The parts of a file, as they are sent.
struct Parts {
    receiver: mpsc::Receiver<Bytes>,
    part: Bytes,
}

impl BufRead for Parts {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.part.is_empty() {
            match self.receiver.blocking_recv() {
                Some(part) => self.part = part,
                None => break,
            }
        }
        Ok(&self.part)
    }

    fn consume(&mut self, read: usize) {
        self.part.advance(read);
    }
}

impl Read for Parts {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.len().min(into.len());
        self.part.copy_to_slice(&mut into[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use datafusion::arrow::datatypes::{DataType, Field};
    use futures::stream;

    use super::*;

    /// Read as from a disk: on a thread for waiting.
    fn content(text: &str, part: usize) -> BoxStream<'static, Result<Bytes>> {
        let parts: Vec<Bytes> = text.as_bytes().chunks(part).map(Bytes::copy_from_slice).collect();
        stream::iter(parts).then(async |part| Ok(tokio::task::spawn_blocking(|| part).await.unwrap())).boxed()
    }

    /// More files at once than the runtime has threads for waiting.
    #[test]
    fn many_files_are_looked_through_at_once() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().max_blocking_threads(1).build().unwrap();
        let text = "{\"a\": 1}\n{\"a\": 2.5, \"b\": \"x\"}\n".repeat(50);
        let looks = (1..20).map(|part| json_schema(content(&text, part)));
        let all = async { tokio::time::timeout(Duration::from_secs(60), futures::future::try_join_all(looks)).await };
        let schemas = runtime.block_on(all).expect("it hangs").unwrap();
        let fields = [Field::new("a", DataType::Float64, true), Field::new("b", DataType::Utf8, true)];
        assert!(schemas.iter().all(|schema| *schema == Schema::new(fields.to_vec())), "{schemas:?}");
    }

    #[tokio::test]
    async fn values_with_line_breaks_are_told_as_they_are_wherever_a_part_ends() {
        let rows: String = (0..40).map(|i| format!("{i},\"a\nb,b\nc,{i}\"\n")).collect();
        let text = format!("id,t\n{rows}");
        for part in [1, 7, 64, text.len()] {
            let schema = csv_schema(content(&text, part), Format::default().with_header(true)).await.unwrap();
            let fields = [Field::new("id", DataType::Int64, true), Field::new("t", DataType::Utf8, true)];
            assert_eq!(schema, Schema::new(fields.to_vec()), "in parts of {part}");
        }
    }

    #[tokio::test]
    async fn an_error_of_the_file_is_its_own() {
        let gone = Error::new(ErrorKind::ChangedSincePlanning, "another version");
        let content = content("{\"a\": 1}\n{\"a\"", 5).chain(stream::iter([Err(gone)]));
        assert_eq!(json_schema(content.boxed()).await.unwrap_err().kind(), ErrorKind::ChangedSincePlanning);
        let error = json_schema(self::content("{\"a\": 1}\nno JSON\n", 5)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.what().contains("its columns cannot be told"), "{error}");
    }
}
