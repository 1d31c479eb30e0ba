//! Delta tables as sources: their files, by the log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::{Field, FieldRef, Schema};
use async_trait::async_trait;
use delta_kernel::actions::deletion_vector::DeletionVectorDescriptor;
use delta_kernel::engine::arrow_conversion::TryIntoArrow;
use futures::{StreamExt, TryStreamExt, stream};
use lakemark::disk::RealDisk;
use lakemark::{
    Bucket, Error, ErrorKind, FileVersion, IMMUTABLE, Lake, RangeSet, Result, Root, SourceTable, StorageOptions,
    TableFile, TableHistory, TablePosition, TableSnapshot, TableStep,
};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

use crate::KIND;
use crate::history::each_line;
use crate::kernel::DeltaBase;
use crate::place::Place;

/// Entries of the log that are read at a time.
const READS: usize = 16;
/// What readers must know that is known here. `columnMapping` is known as far as it is not used.
const FEATURES: [&str; 6] =
    ["columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"];
/// What the token of a file with a deletion vector begins with.
const VECTOR: &str = "dv=";

/// A Delta table, to read from.
///
/// Files are known by path, size and deletion vector, as the log has them: none is listed or asked of before it is read.
/// Rows that a deletion vector deletes are not read.
#[derive(Debug)]
pub struct DeltaSource {
    place: Place,
    lake: Lake,
    /// The last snapshot that was taken.
    base: Mutex<Option<DeltaBase>>,
}

impl DeltaSource {
    /// The table at `url`, reached with `options`. Nothing is asked of it yet.
    ///
    /// # Errors
    /// As [`Root::parse`] and [`Bucket::connect`].
    pub fn connect(url: &str, options: &StorageOptions) -> Result<Self> {
        let root = Root::parse(url)?;
        let lake = Lake::of_table(root.clone(), options)?;
        let place = if root.is_local() {
            Place::on_disk(root, Arc::new(RealDisk))?
        } else {
            let bucket = Bucket::connect(&root, options)?;
            Place::in_bucket(root, &bucket)?
        };
        Ok(Self { place, lake, base: Mutex::default() })
    }

    fn unsupported(&self, what: String) -> Error {
        Error::new(ErrorKind::Unsupported, what)
            .at(&self.place.root)
            .safe("nothing was read or written")
            .way("write the table anew without it, with its own tools, and read that")
    }

    /// Refuses what would be read wrongly.
    fn check(&self, base: &DeltaBase) -> Result<()> {
        let configuration = base.snapshot().table_configuration();
        let features = configuration.protocol().reader_features().unwrap_or_default();
        let unknown = features.iter().map(ToString::to_string).find(|feature| !FEATURES.contains(&feature.as_str()));
        if let Some(feature) = unknown {
            return Err(self.unsupported(format!("the table has the feature `{feature}`, which is not read here")));
        }
        let mode = configuration.metadata().configuration().get("delta.columnMapping.mode");
        match mode.filter(|mode| !mode.eq_ignore_ascii_case("none")) {
            Some(mode) => Err(self.unsupported(format!(
                "the columns of the table are mapped by {mode} (delta.columnMapping.mode), which is not read here"
            ))),
            None => Ok(()),
        }
    }

    fn schema(&self, base: &DeltaBase) -> Result<Schema> {
        let schema: Result<Schema, _> = base.snapshot().schema().as_ref().try_into_arrow();
        let schema = schema.map_err(|e| {
            self.unsupported("the table has a column of a type that is not read here".into()).caused_by(e)
        })?;
        let plain = |field: &FieldRef| Field::clone(field).with_metadata(Default::default());
        Ok(Schema::new(schema.fields().iter().map(plain).collect::<Vec<_>>()))
    }

    /// The file of the log at `path`.
    fn file(&self, path: &str, size: u64, vector: Option<String>, values: Values) -> Result<TableFile> {
        let outside = |what: &str| {
            self.unsupported(format!("the table has `{path}`, {what}: only files below the table are read here"))
        };
        let decoded = percent_decode_str(path).decode_utf8().map_err(|_| outside("which is no text"))?;
        let is_url = path.split_once(":/").is_some_and(|(scheme, _)| !scheme.contains('/'));
        if is_url || decoded.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(outside("which is elsewhere (a shallow clone?)"));
        }
        if vector.as_ref().is_some_and(|vector| vector.starts_with(&format!("{VECTOR}p"))) {
            return Err(outside("whose deletion vector is elsewhere"));
        }
        let token = vector.unwrap_or_else(|| IMMUTABLE.to_owned());
        Ok(TableFile { file: FileVersion::new(decoded, size).with_etag(&token), values })
    }

    /// Takes the files of one batch of the snapshot.
    fn take_batch(&self, files: &mut Vec<TableFile>, batch: &RecordBatch) -> Result<()> {
        let odd = |what: &str| {
            Error::new(ErrorKind::Corrupt, format!("the log of the table has a file without {what}"))
                .at(&self.place.root)
                .safe("nothing was read or written")
                .way("mend the table with its own tools")
        };
        let column = |name: &str| batch.column_by_name(name).ok_or_else(|| odd(name));
        let (paths, sizes) = (column("path")?.as_string::<i32>(), column("size")?.as_primitive::<Int64Type>());
        let vectors = column("deletionVector")?.as_struct();
        let constants = column("fileConstantValues")?.as_struct();
        let values = constants.column_by_name("partitionValues").ok_or_else(|| odd("partition values"))?.as_map();
        for row in (0..batch.num_rows()).filter(|row| paths.is_valid(*row)) {
            let size = u64::try_from(sizes.value(row)).map_err(|_| odd("a size"))?;
            let mut of = Values::new();
            if values.is_valid(row) {
                let entries = values.value(row);
                let (keys, texts) = (entries.column(0).as_string::<i32>(), entries.column(1).as_string::<i32>());
                for i in 0..entries.len() {
                    let text = texts.is_valid(i).then(|| texts.value(i)).filter(|text| !text.is_empty());
                    of.insert(keys.value(i).into(), text.map(Into::into));
                }
            }
            files.push(self.file(paths.value(row), size, vector_of(vectors, row), of)?);
        }
        Ok(())
    }

    /// A digest of the entry of `version`; `None`: there is no such entry any more.
    async fn mark(&self, version: u64) -> Result<Option<String>> {
        let mut hash = Xxh3::new();
        let is_there = each_line(&self.place, version, |line| {
            hash.update(line);
            Ok(())
        })
        .await?;
        Ok(is_there.then(|| format!("{:032x}", hash.digest128())))
    }

    /// What the entry of `version` did to files; `None`: there is no such entry any more.
    async fn steps(&self, version: u64) -> Result<Option<Vec<TableStep>>> {
        let mut said = Vec::new();
        let take = |line: &[u8]| {
            let has = |key: &[u8]| line.windows(key.len()).any(|at| at == key);
            if has(b"\"add\"") || has(b"\"remove\"") || has(b"\"commitInfo\"") {
                said.push(serde_json::from_slice::<Value>(line)?);
            }
            Ok(())
        };
        if !each_line(&self.place, version, take).await? {
            return Ok(None);
        }
        let mut step = TableStep {
            at: version.to_string(),
            operation: "it does not say what it is".to_owned(),
            same_rows: true,
            brings_back: false,
            removed: Vec::new(),
            added: Vec::new(),
        };
        for line in &said {
            if let Some(operation) = line["commitInfo"]["operation"].as_str() {
                operation.clone_into(&mut step.operation);
                step.brings_back |= operation == "RESTORE";
            }
            for (key, into) in [("add", &mut step.added), ("remove", &mut step.removed)] {
                let Some(path) = line[key]["path"].as_str() else { continue };
                let action = &line[key];
                step.same_rows &= action["dataChange"] == Value::Bool(false);
                let size = action["size"].as_u64().unwrap_or(0);
                into.push(self.file(path, size, vector_in(&action["deletionVector"]), values_in(action))?);
            }
        }
        Ok(Some(by_file(step)))
    }
}

/// A new deletion vector for a file that stays is a step of its own: it is known what became of which rows.
fn by_file(step: TableStep) -> Vec<TableStep> {
    let TableStep { at, operation, same_rows, brings_back, removed, added } = step;
    let mut by_path: BTreeMap<Arc<str>, TableFile> =
        removed.into_iter().map(|file| (Arc::clone(&file.file.path), file)).collect();
    let of = |removed, added| {
        let (at, operation) = (at.clone(), operation.clone());
        TableStep { at, operation, same_rows, brings_back, removed, added }
    };
    let (mut steps, mut others) = (Vec::new(), Vec::new());
    for file in added {
        match by_path.remove(&file.file.path) {
            Some(removed) => steps.push(of(vec![removed], vec![file])),
            None => others.push(file),
        }
    }
    if !by_path.is_empty() || brings_back {
        steps.push(of(by_path.into_values().collect(), others));
    }
    steps
}

type Values = BTreeMap<Arc<str>, Option<Arc<str>>>;

/// The token of a file with a deletion vector: all that is needed to read it.
fn token(storage: &str, place: &str, offset: Option<i64>, size: i64, rows: i64) -> String {
    let offset = offset.map(|offset| offset.to_string()).unwrap_or_default();
    format!("{VECTOR}{storage}{place}@{offset},{size},{rows}")
}

fn vector_of(vectors: &StructArray, row: usize) -> Option<String> {
    let column = |name: &str| vectors.column_by_name(name);
    let storage = column("storageType")?.as_string::<i32>();
    if vectors.is_null(row) || storage.is_null(row) {
        return None;
    }
    let offsets = column("offset")?.as_primitive::<Int32Type>();
    let offset = offsets.is_valid(row).then(|| i64::from(offsets.value(row)));
    let place = column("pathOrInlineDv")?.as_string::<i32>().value(row);
    let size = column("sizeInBytes")?.as_primitive::<Int32Type>().value(row);
    let rows = column("cardinality")?.as_primitive::<Int64Type>().value(row);
    Some(token(storage.value(row), place, offset, size.into(), rows))
}

fn vector_in(action: &Value) -> Option<String> {
    let (storage, place) = (action["storageType"].as_str()?, action["pathOrInlineDv"].as_str()?);
    let (size, rows) = (action["sizeInBytes"].as_i64()?, action["cardinality"].as_i64()?);
    Some(token(storage, place, action["offset"].as_i64(), size, rows))
}

fn values_in(action: &Value) -> Values {
    let all = action["partitionValues"].as_object().into_iter().flatten();
    all.map(|(key, value)| (key.as_str().into(), value.as_str().filter(|text| !text.is_empty()).map(Into::into)))
        .collect()
}

/// The deletion vector that a token means, and how many rows it deletes.
fn vector(token: &str) -> Option<(DeletionVectorDescriptor, u64)> {
    let token = token.strip_prefix(VECTOR)?;
    let (storage, rest) = token.split_at_checked(1)?;
    // No comma is ever part of a place, an at sign can be.
    let (place, numbers) = rest.rsplit_once('@')?;
    let mut numbers = numbers.split(',');
    let (offset, size, rows) = (numbers.next()?, numbers.next()?.parse().ok()?, numbers.next()?.parse::<i64>().ok()?);
    let offset = if offset.is_empty() { None } else { Some(offset.parse().ok()?) };
    let vector = DeletionVectorDescriptor::try_new(storage.parse().ok()?, place, offset, size, rows).ok()?;
    Some((vector, u64::try_from(rows).ok()?))
}

#[async_trait]
impl SourceTable for DeltaSource {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn lake(&self) -> &Lake {
        &self.lake
    }

    async fn snapshot(&self) -> Result<TableSnapshot> {
        let counters = self.lake.counters();
        counters.listed();
        let Some(base) = DeltaBase::newest(&self.place).await? else {
            return Err(Error::invalid("there is no Delta table")
                .at(&self.place.root)
                .safe("a source that is not there is never taken for an empty one")
                .way("check the source's `url` and `format`"));
        };
        self.check(&base)?;
        let schema = self.schema(&base)?;
        let this = Self { place: self.place.clone(), lake: self.lake.clone(), base: Mutex::default() };
        let mut files = base.each_batch(Vec::new(), move |files, batch| this.take_batch(files, batch)).await?;
        files.sort_by(|a, b| a.file.path.cmp(&b.file.path));
        if let Some(twice) = files.windows(2).find(|two| two[0].file.path == two[1].file.path) {
            let path = &twice[0].file.path;
            return Err(Error::new(ErrorKind::Corrupt, format!("the log of the table has `{path}` twice"))
                .at(&self.place.root)
                .safe("nothing was read or written")
                .way("mend the table with its own tools"));
        }
        let metadata = base.snapshot().table_configuration().metadata();
        let snapshot = TableSnapshot {
            id: metadata.id().to_owned(),
            version: base.version(),
            at: base.version().to_string(),
            files,
            mark: self.mark(base.version()).await?.unwrap_or_default(),
            schema: Arc::new(schema),
            partition_by: metadata.partition_columns().to_vec(),
            // One that was added later is not in the files of before.
            has_all_columns: false,
        };
        *self.base.lock().unwrap_or_else(PoisonError::into_inner) = Some(base);
        Ok(snapshot)
    }

    async fn history(&self, since: &TablePosition, to: &TableSnapshot) -> Result<TableHistory> {
        // A table that was put back by its storage goes on with the same numbers.
        let now = if since.version == to.version { Some(to.mark.clone()) } else { self.mark(since.version).await? };
        if now.is_some_and(|now| !since.mark.is_empty() && !now.is_empty() && now != since.mark) {
            return Ok(TableHistory::Gap(format!("its version {} is another one than before", since.version)));
        }
        let steps = (since.version + 1..=to.version).map(|version| async move {
            self.lake.counters().listed();
            Ok::<_, Error>((version, self.steps(version).await?))
        });
        let mut steps = stream::iter(steps).buffered(READS);
        let mut all = Vec::new();
        while let Some((version, step)) = steps.try_next().await? {
            match step {
                None => return Ok(TableHistory::Gap(format!("entry {version} of its log was cleaned up"))),
                Some(steps) => all.extend(steps),
            }
        }
        Ok(TableHistory::Steps(all))
    }

    async fn deleted(&self, file: &FileVersion) -> Result<RangeSet> {
        let token = file.etag.as_deref().unwrap_or_default();
        if token == IMMUTABLE {
            return Ok(RangeSet::new());
        }
        let bad = |what: &str| {
            Error::new(ErrorKind::Corrupt, format!("{what} deletion vector"))
                .at(self.lake.place(&file.path))
                .safe("nothing is sealed for the file")
                .way("mend the table with its own tools")
        };
        let (vector, rows) = vector(token).ok_or_else(|| bad("the file has no readable"))?;
        let base = self.base.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let base = base.ok_or_else(|| Error::invalid("the table was not looked at before its files are read"))?;
        self.lake.counters().got();
        let deleted: RangeSet = base.deleted(vector).await?.into_iter().collect();
        if deleted.count() == rows { Ok(deleted) } else { Err(bad("the log says another count of rows than the")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_gives_the_deletion_vector_again() {
        let uuid = "ab^-aqEH.-t@S}K{vb[*k^";
        let (found, rows) = vector(&token("u", uuid, Some(4), 40, 6)).unwrap();
        assert_eq!((found.path_or_inline_dv.as_str(), found.offset, found.size_in_bytes, rows), (uuid, Some(4), 40, 6));
        let (found, _) =
            vector(&token("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 40, 6)).unwrap();
        assert_eq!((found.offset, found.cardinality), (None, 6));
        for wrong in [IMMUTABLE, "dv=", "dv=x@1,2,3", "dv=iabc@,x,3", "dv=iabc@,1"] {
            assert!(vector(wrong).is_none(), "{wrong}");
        }
    }
}
