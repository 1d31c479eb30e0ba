//! Iceberg tables as sources: their files, by the manifests of the current snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use iceberg::spec::{
    DataFile, DataFileFormat, FormatVersion, Literal, ManifestContentType, ManifestFile, ManifestStatus, Operation,
    PartitionSpec, PrimitiveLiteral, PrimitiveType, Schema, SnapshotRef, Transform,
};
use iceberg::table::Table as Loaded;
use iceberg::{Catalog, TableIdent};
use lakemark::{
    Error, ErrorKind, FileVersion, IMMUTABLE, Lake, RangeSet, Result, SourceTable, StorageOptions, Table, TableFile,
    TableHistory, TablePosition, TableSnapshot, TableStep,
};

use crate::KIND;
use crate::catalog::CatalogOptions;
use crate::history::{ancestry, version};
use crate::schema::to_arrow;
use crate::table::{IcebergBase, IcebergTable};

/// An Iceberg table, to read from, by the catalog that it is in.
///
/// Files are known by path and size, as the manifests have them: none is listed or asked of before it is read. Tables with
/// delete files, with another schema or other partitions than at first, or with files of other formats are refused.
#[derive(Debug)]
pub struct IcebergSource {
    table: IcebergTable,
    lake: Lake,
}

impl IcebergSource {
    /// The table at `url`, reached with `options`, and registered in `catalog`. Nothing is asked of it yet.
    ///
    /// # Errors
    /// As [`IcebergTable::connect`].
    pub fn connect(url: &str, options: &StorageOptions, catalog: CatalogOptions) -> Result<Self> {
        Self::of(IcebergTable::connect(url, options, catalog)?, options)
    }

    /// The table `table` at `url`, reached with `options`, and registered in `catalog`.
    ///
    /// # Errors
    /// As [`IcebergTable::in_catalog`].
    pub fn in_catalog(
        url: &str,
        options: &StorageOptions,
        catalog: Arc<dyn Catalog>,
        table: TableIdent,
    ) -> Result<Self> {
        Self::of(IcebergTable::in_catalog(url, options, catalog, table)?, options)
    }

    fn of(table: IcebergTable, options: &StorageOptions) -> Result<Self> {
        let lake = Lake::of_table(table.place.root.clone(), options)?;
        Ok(Self { table, lake })
    }

    async fn load(&self) -> Result<Loaded> {
        self.lake.counters().listed();
        match self.table.load().await? {
            Some(IcebergBase(table)) => Ok(table),
            None => Err(self
                .table
                .here(Error::invalid(format!("there is no table {} in its catalog", self.table.registry.table)))
                .safe("a source that is not there is never taken for an empty one")
                .way("check the source's `catalog`")),
        }
    }

    fn unsupported(&self, what: String) -> Error {
        self.table
            .here(Error::new(ErrorKind::Unsupported, what))
            .safe("nothing was read or written")
            .way("write the table anew without it, with its own tools, and read that")
    }

    fn failed(&self, error: iceberg::Error) -> Error {
        self.table.unavailable("the manifests of the table cannot be read", error)
    }

    /// Refuses what would be read wrongly.
    fn check(&self, table: &Loaded) -> Result<()> {
        let metadata = table.metadata();
        if !self.table.place.is_at(metadata.location()) {
            let what = format!("the table {} is at {}", self.table.registry.table, metadata.location());
            return Err(self
                .table
                .here(Error::refused(what))
                .safe("nothing was read or written")
                .way(format!("set the source's `url` to {}", metadata.location())));
        }
        if metadata.format_version() != FormatVersion::V2 {
            let what = format!("the table has format version {}, and 2 is read here", metadata.format_version() as u8);
            return Err(self.unsupported(what));
        }
        if metadata.schemas_iter().count() > 1 {
            return Err(self.unsupported("the schema of the table was changed (it has several)".into()));
        }
        let partitions = metadata.partition_specs_iter().filter(|spec| !spec.is_unpartitioned()).count();
        if metadata.partition_specs_iter().count() > 1 && partitions > 0 {
            return Err(self.unsupported("the partitions of the table were changed (it has several specs)".into()));
        }
        Ok(())
    }

    /// The manifests of `snapshot`.
    async fn manifests(&self, table: &Loaded, snapshot: &SnapshotRef) -> Result<Vec<ManifestFile>> {
        self.lake.counters().listed();
        let list = table.manifest_list_reader(snapshot).load().await;
        Ok(list.map_err(|e| self.failed(e))?.consume_entries().into_iter().collect())
    }

    /// The data files of `manifest`, with what became of them and in which snapshot.
    async fn entries(
        &self,
        table: &Loaded,
        columns: &Columns,
        manifest: &ManifestFile,
    ) -> Result<Vec<(ManifestStatus, Option<i64>, TableFile)>> {
        self.lake.counters().listed();
        let manifest = manifest.load_manifest(table.file_io()).await.map_err(|e| self.failed(e))?;
        let entry = |entry: &Arc<iceberg::spec::ManifestEntry>| {
            Ok((entry.status(), entry.snapshot_id(), self.file(entry.data_file(), columns)?))
        };
        manifest.entries().iter().map(entry).collect()
    }

    fn file(&self, file: &DataFile, columns: &Columns) -> Result<TableFile> {
        let name = file.file_path();
        if file.file_format() != DataFileFormat::Parquet {
            return Err(self.unsupported(format!("the table has `{name}`, which is {:?}", file.file_format())));
        }
        // Not by the place's own slashes: a name with two in a row is another object than one with one.
        let Some(path) = self.table.place.relative(name).filter(|path| !path.starts_with('/')) else {
            return Err(self.unsupported(format!("the table has `{name}`: only files below the table are read here")));
        };
        let mut values = BTreeMap::new();
        for (field, value) in columns.0.iter().zip(file.partition().iter()) {
            let Some((name, of)) = field else { continue };
            let text = match value {
                None => None,
                Some(value) => Some(text(value, of).ok_or_else(|| {
                    self.unsupported(format!("partition column `{name}` is {of}, whose values are not read here"))
                })?),
            };
            values.insert(Arc::clone(name), text.map(Into::into));
        }
        let file = FileVersion::new(path, file.file_size_in_bytes()).with_etag(IMMUTABLE);
        Ok(TableFile { file, values })
    }

    /// What `snapshot` did to files; `None`: only files came.
    async fn step(&self, table: &Loaded, columns: &Columns, snapshot: &SnapshotRef) -> Result<Option<TableStep>> {
        let operation = &snapshot.summary().operation;
        if *operation == Operation::Append {
            return Ok(None);
        }
        let id = snapshot.snapshot_id();
        let mut step = TableStep {
            at: id.to_string(),
            operation: operation.as_str().to_owned(),
            same_rows: *operation == Operation::Replace,
            brings_back: false,
            removed: Vec::new(),
            added: Vec::new(),
        };
        for manifest in self.manifests(table, snapshot).await? {
            if manifest.added_snapshot_id != id {
                continue;
            }
            if manifest.content == ManifestContentType::Deletes {
                // Which rows of which files they delete is not read: of none it can be said what became of its rows.
                step.same_rows = false;
                step.operation = format!("{}, by delete files", operation.as_str());
                continue;
            }
            for (status, of, file) in self.entries(table, columns, &manifest).await? {
                match status {
                    ManifestStatus::Added if of == Some(id) => step.added.push(file),
                    ManifestStatus::Deleted if of == Some(id) => step.removed.push(file),
                    _ => {}
                }
            }
        }
        Ok(Some(step))
    }
}

/// The columns of each field of the partitions whose values are those of the column; of others `None`.
struct Columns(Vec<Option<(Arc<str>, PrimitiveType)>>);

impl Columns {
    fn of(spec: &PartitionSpec, schema: &Schema) -> Self {
        let column = |field: &iceberg::spec::PartitionField| {
            let column = schema.field_by_id(field.source_id).filter(|_| field.transform == Transform::Identity)?;
            // Within a struct it has no place among the columns, and is read from the files.
            let is_column = schema.as_struct().field_by_name(&column.name).is_some_and(|top| top.id == column.id);
            let of = column.field_type.as_primitive_type().filter(|_| is_column)?;
            Some((Arc::from(column.name.as_str()), of.clone()))
        };
        Self(spec.fields().iter().map(column).collect())
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().flatten().map(|(name, _)| name.to_string()).collect()
    }
}

/// The text of a partition value, by which it is known again.
fn text(value: &Literal, of: &PrimitiveType) -> Option<String> {
    let Literal::Primitive(value) = value else { return None };
    Some(match (value, of) {
        (PrimitiveLiteral::Boolean(value), PrimitiveType::Boolean) => value.to_string(),
        (PrimitiveLiteral::Int(value), PrimitiveType::Int) => value.to_string(),
        (PrimitiveLiteral::Long(value), PrimitiveType::Long) => value.to_string(),
        (PrimitiveLiteral::String(value), PrimitiveType::String) => value.clone(),
        (PrimitiveLiteral::Int(days), PrimitiveType::Date) => date(i64::from(*days)),
        (PrimitiveLiteral::Long(micros), PrimitiveType::Timestamp) => time(*micros),
        (PrimitiveLiteral::Long(micros), PrimitiveType::Timestamptz) => format!("{}Z", time(*micros)),
        (PrimitiveLiteral::Int128(unscaled), PrimitiveType::Decimal { scale, .. }) => {
            let digits = format!("{:0>1$}", unscaled.unsigned_abs(), *scale as usize + 1);
            let (whole, part) = digits.split_at(digits.len() - *scale as usize);
            let sign = if *unscaled < 0 { "-" } else { "" };
            if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
        }
        _ => return None,
    })
}

/// The date of a day number (Howard Hinnant's civil_from_days).
fn date(days: i64) -> String {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

fn time(micros: i64) -> String {
    let (days, of_day) = (micros.div_euclid(86_400_000_000), micros.rem_euclid(86_400_000_000));
    let (seconds, fraction) = (of_day / 1_000_000, of_day % 1_000_000);
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("{}T{hours:02}:{minutes:02}:{:02}.{fraction:06}", date(days), seconds % 60)
}

#[async_trait]
impl SourceTable for IcebergSource {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn lake(&self) -> &Lake {
        &self.lake
    }

    async fn snapshot(&self) -> Result<TableSnapshot> {
        let table = self.load().await?;
        self.check(&table)?;
        let metadata = table.metadata();
        let (schema, spec) = (metadata.current_schema(), metadata.default_partition_spec());
        let columns = Columns::of(spec, schema);
        let arrow = to_arrow(schema)
            .ok_or_else(|| self.unsupported("the table has a column of a type that is not read here".into()))?;
        let mut files = Vec::new();
        let current = metadata.current_snapshot();
        let manifests = match current {
            Some(snapshot) => self.manifests(&table, snapshot).await?,
            None => Vec::new(),
        };
        for manifest in manifests.iter().filter(|of| of.has_added_files() || of.has_existing_files()) {
            if manifest.content == ManifestContentType::Deletes {
                return Err(self
                    .unsupported("the table has delete files, which are not read here".into())
                    .way("compact it, so that they are applied (rewrite_data_files), then run again"));
            }
            for (status, _, file) in self.entries(&table, &columns, manifest).await? {
                files.extend((status != ManifestStatus::Deleted).then_some(file));
            }
        }
        files.sort_by(|a, b| a.file.path.cmp(&b.file.path));
        if let Some(twice) = files.windows(2).find(|two| two[0].file.path == two[1].file.path) {
            return Err(self.unsupported(format!("the table has `{}` twice", twice[0].file.path)));
        }
        Ok(TableSnapshot {
            id: metadata.uuid().to_string(),
            version: version(metadata),
            at: current.map(|snapshot| snapshot.snapshot_id().to_string()).unwrap_or_default(),
            files,
            schema: Arc::new(arrow),
            partition_by: columns.names(),
            mark: String::new(),
            has_all_columns: true,
        })
    }

    async fn history(&self, since: &TablePosition, to: &TableSnapshot) -> Result<TableHistory> {
        let table = self.load().await?;
        let metadata = table.metadata();
        let columns = Columns::of(metadata.default_partition_spec(), metadata.current_schema());
        // The table may have gone on since the snapshot was taken.
        let line: Vec<&SnapshotRef> =
            ancestry(metadata).skip_while(|snapshot| snapshot.snapshot_id().to_string() != to.at).collect();
        let known = line.iter().position(|snapshot| snapshot.snapshot_id().to_string() == since.at);
        let is_first =
            |snapshot: &&&SnapshotRef| snapshot.parent_snapshot_id().is_none() && snapshot.sequence_number() == 1;
        let known = match known {
            Some(known) => known,
            None if since.at.is_empty() && (to.at.is_empty() || line.last().filter(is_first).is_some()) => line.len(),
            None => {
                let what = format!("the snapshots since {} are expired, or the table was taken back", since.at);
                return Ok(TableHistory::Gap(what));
            }
        };
        let mut steps = Vec::new();
        for snapshot in line[..known].iter().rev() {
            match self.step(&table, &columns, snapshot).await? {
                Some(step) if step.operation.ends_with("delete files") => {
                    return Ok(TableHistory::Gap(format!("snapshot {} deleted rows by delete files", step.at)));
                }
                step => steps.extend(step.filter(|step| !step.removed.is_empty())),
            }
        }
        Ok(TableHistory::Steps(steps))
    }

    async fn deleted(&self, _: &FileVersion) -> Result<RangeSet> {
        Ok(RangeSet::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_values_have_the_text_that_arrow_reads() {
        let decimal = |scale| PrimitiveType::Decimal { precision: 9, scale };
        for (value, of, wanted) in [
            (Literal::decimal(-1205), decimal(2), "-12.05"),
            (Literal::decimal(-5), decimal(2), "-0.05"),
            (Literal::decimal(7), decimal(0), "7"),
            (Literal::date(19_782), PrimitiveType::Date, "2024-02-29"),
            (Literal::date(-1), PrimitiveType::Date, "1969-12-31"),
            (Literal::timestamp(-1), PrimitiveType::Timestamp, "1969-12-31T23:59:59.999999"),
            (Literal::timestamptz(1_700_000_000_000_001), PrimitiveType::Timestamptz, "2023-11-14T22:13:20.000001Z"),
            (Literal::string("a/b"), PrimitiveType::String, "a/b"),
            (Literal::long(-7), PrimitiveType::Long, "-7"),
        ] {
            assert_eq!(text(&value, &of).as_deref(), Some(wanted));
        }
        assert_eq!(text(&Literal::binary(vec![1]), &PrimitiveType::Binary), None);
    }
}
