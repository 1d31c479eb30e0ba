//! The rows of one task that are not done, in slices.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::{concat, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use lakemark::{Claimant, Error, ErrorKind, InputId, KeyEncoder, KeyReport, Known, KnownKeys, Result};
use tokio::sync::Mutex;

use super::{OnDuplicate, RowSource};
use crate::errors::from_datafusion;

/// How large a slice is: what comes first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) rows: usize,
    /// As Arrow arrays in memory.
    pub(crate) bytes: usize,
}

/// Rows with their keys.
#[derive(Debug)]
struct Piece {
    batch: RecordBatch,
    fingerprints: Vec<u128>,
}

impl Piece {
    fn rows(&self) -> usize {
        self.fingerprints.len()
    }

    /// Its first `rows`, and the rest.
    fn split(mut self, rows: usize) -> (Self, Self) {
        let rest = self.fingerprints.split_off(rows);
        let (first, second) = (self.batch.slice(0, rows), self.batch.slice(rows, rest.len()));
        (Self { batch: first, fingerprints: self.fingerprints }, Self { batch: second, fingerprints: rest })
    }

    /// Only the rows that `keep`.
    fn filter(self, keep: &[bool]) -> Result<Self> {
        let batch = filter_record_batch(&self.batch, &BooleanArray::from(keep.to_vec()));
        let batch = batch.map_err(|error| Error::invalid("rows cannot be filtered").caused_by(error))?;
        let kept = self.fingerprints.into_iter().zip(keep).filter(|(_, keep)| **keep);
        Ok(Self { batch: compact(batch), fingerprints: kept.map(|(fingerprint, _)| fingerprint).collect() })
    }
}

/// One attempt's way through a task. It claims the keys of the rows that it hands out; what it has not sealed when it is
/// dropped is free again.
pub(crate) struct Feed {
    source: Arc<RowSource>,
    known: Arc<KnownKeys>,
    encoder: KeyEncoder,
    who: Claimant,
    limits: Limits,
    state: Mutex<State>,
}

struct State {
    /// `None`: it has ended.
    stream: Option<SendableRecordBatchStream>,
    /// Rows beyond the slice.
    ahead: VecDeque<Piece>,
    /// Kept until its seal is decided: another attempt's can make it begin anew.
    slice: Vec<Piece>,
    /// The keys of the task's seals that others made.
    sealed: HashSet<u128>,
    counts: KeyReport,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("source", &self.source.name).field("who", &self.who).finish_non_exhaustive()
    }
}

impl Feed {
    /// The way through the rows of `stream`, which are those of the task `input`.
    pub(super) fn new(
        source: &Arc<RowSource>,
        known: Arc<KnownKeys>,
        input: InputId,
        stream: SendableRecordBatchStream,
        limits: Limits,
    ) -> Result<Self> {
        let encoder = KeyEncoder::new(&source.spec, &stream.schema())?;
        let state = State {
            stream: Some(stream),
            ahead: VecDeque::new(),
            slice: Vec::new(),
            sealed: HashSet::new(),
            counts: KeyReport::default(),
        };
        let who = Claimant { input, attempt: source.next_attempt() };
        Ok(Self { source: Arc::clone(source), known, encoder, who, limits, state: Mutex::new(state) })
    }

    pub(super) fn input(&self) -> InputId {
        self.who.input
    }

    pub(super) fn source(&self) -> &Arc<RowSource> {
        &self.source
    }

    pub(super) fn known(&self) -> &Arc<KnownKeys> {
        &self.known
    }

    /// Reads on until the slice is full or the task has ended; whether there is any row in it.
    pub(super) async fn fill(&self) -> Result<bool> {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let (mut rows, mut bytes) = (0, 0);
        for piece in &state.slice {
            (rows, bytes) = (rows + piece.rows(), bytes + piece.batch.get_array_memory_size());
        }
        while rows < self.limits.rows && bytes < self.limits.bytes {
            let piece = match state.ahead.pop_front() {
                Some(piece) => piece,
                None => {
                    let Some(stream) = &mut state.stream else { break };
                    match stream.next().await {
                        Some(Ok(batch)) => self.take(state, batch)?,
                        Some(Err(error)) => {
                            let failed = format!("source `{}` cannot be read", self.source.name);
                            return Err(from_datafusion(error, ErrorKind::Unavailable, &failed)
                                .at(&self.source.root)
                                .safe("the rows that were read are not sealed; what was sealed before is kept"));
                        }
                        None => {
                            state.stream = None;
                            break;
                        }
                    }
                }
            };
            if piece.rows() == 0 {
                continue;
            }
            let room = self.limits.rows - rows;
            let piece = if piece.rows() > room {
                let (first, rest) = piece.split(room);
                state.ahead.push_front(rest);
                first
            } else {
                piece
            };
            (rows, bytes) = (rows + piece.rows(), bytes + piece.batch.get_array_memory_size());
            state.slice.push(piece);
        }
        self.source.counts.insert(self.who.input, state.counts);
        Ok(rows > 0)
    }

    /// The rows of `batch` that nobody has done or works on; they are this attempt's from now on.
    fn take(&self, state: &mut State, batch: RecordBatch) -> Result<Piece> {
        let mut fingerprints = Vec::with_capacity(batch.num_rows());
        self.encoder.fingerprints(&batch, &mut fingerprints).map_err(|error| error.at(&self.source.root))?;
        state.counts.read += fingerprints.len() as u64;
        if self.source.on_duplicate == OnDuplicate::Fail
            && let Some(row) = self.source.read_twice(self.who, &fingerprints)
        {
            return Err(self.duplicate(&batch, row));
        }
        let mut known = Vec::new();
        self.known.claim(self.who, &fingerprints, &mut known)?;
        let mut keep = Vec::with_capacity(known.len());
        for (known, fingerprint) in known.iter().zip(&fingerprints) {
            let is_own = state.sealed.contains(fingerprint);
            keep.push(*known == Known::New && !is_own);
            match known {
                Known::Done => state.counts.done += 1,
                _ if is_own => state.counts.done += 1,
                Known::Taken => state.counts.repeated += 1,
                Known::New => state.counts.new += 1,
            }
        }
        let piece = Piece { batch, fingerprints };
        if keep.iter().all(|keep| *keep) { Ok(piece) } else { piece.filter(&keep) }
    }

    fn duplicate(&self, batch: &RecordBatch, row: usize) -> Error {
        let (name, key) = (&self.source.name, self.encoder.describe(batch, row));
        Error::invalid(format!("two rows of source `{name}` have one key: {key}"))
            .at(&self.source.root)
            .safe("neither is lost: at most one of them was sealed, and what was sealed before is kept")
            .way("take the second row out of the source, then run again")
            .way("add a column to `on` that tells them apart, with another `store` and destination")
            .way("do one row of each key: on_duplicate = \"first\"")
    }

    /// The rows of the slice.
    pub(super) async fn slice(&self) -> Vec<RecordBatch> {
        self.state.lock().await.slice.iter().map(|piece| piece.batch.clone()).collect()
    }

    /// The keys of the slice, and their values if they are kept.
    pub(super) async fn keys(&self) -> Result<(Vec<u128>, Vec<ArrayRef>)> {
        let state = self.state.lock().await;
        let fingerprints = state.slice.iter().flat_map(|piece| piece.fingerprints.iter().copied()).collect();
        if !self.source.spec.values {
            return Ok((fingerprints, Vec::new()));
        }
        let parts: Vec<Vec<ArrayRef>> = state.slice.iter().map(|piece| self.encoder.values(&piece.batch)).collect();
        let column = |i: usize| {
            let arrays: Vec<&dyn Array> = parts.iter().map(|part| &*part[i]).collect();
            concat(&arrays).map_err(|error| Error::invalid("the values of keys cannot be joined").caused_by(error))
        };
        let columns = self.source.spec.columns.len();
        Ok((fingerprints, (0..columns).map(column).collect::<Result<_>>()?))
    }

    /// The slice is sealed, or handed to who will seal it: its rows are not this attempt's any more.
    pub(super) async fn pass(&self) {
        self.state.lock().await.slice.clear();
    }

    /// Leaves out `fingerprints`, which a seal of the task has, from here on and from the slice.
    pub(super) async fn leave_out(&self, fingerprints: &[u128]) -> Result<()> {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        state.sealed.extend(fingerprints);
        let mut gone = 0;
        let mut left = |piece: Piece| {
            let keep: Vec<bool> = piece.fingerprints.iter().map(|key| !state.sealed.contains(key)).collect();
            let out = keep.iter().filter(|keep| !**keep).count() as u64;
            gone += out;
            if out == 0 { Ok(piece) } else { piece.filter(&keep) }
        };
        state.slice = std::mem::take(&mut state.slice).into_iter().map(&mut left).collect::<Result<_>>()?;
        state.ahead = std::mem::take(&mut state.ahead).into_iter().map(&mut left).collect::<Result<_>>()?;
        state.counts.new -= gone;
        state.counts.done += gone;
        Ok(())
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        for piece in state.slice.iter().chain(&state.ahead) {
            self.known.release(self.who, &piece.fingerprints);
        }
    }
}

/// Views of few rows keep the buffers of many.
fn compact(batch: RecordBatch) -> RecordBatch {
    let is_view = |column: &ArrayRef| matches!(column.data_type(), DataType::Utf8View | DataType::BinaryView);
    if !batch.columns().iter().any(is_view) {
        return batch;
    }
    let schema: SchemaRef = batch.schema();
    let columns = batch.columns().iter().map(|column| -> ArrayRef {
        match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()),
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
            _ => Arc::clone(column),
        }
    });
    let columns = columns.collect();
    RecordBatch::try_new(schema, columns).unwrap_or(batch)
}
