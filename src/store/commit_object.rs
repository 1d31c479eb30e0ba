//! What one intent adds and takes out, as an immutable Parquet object; its digest binds the commit to exactly this set (I6).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;

use super::bounded;
use super::seal::{OutputFile, Upload};
use crate::error::{Error, Result};
use crate::identity::CheckpointId;

/// One checkpoint of a commit with its files; a checkpoint without output has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitMember {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Its output files.
    pub outputs: Vec<OutputFile>,
    /// Whether they leave the destination, where an earlier commit had put them.
    pub leaves: bool,
}

/// Encodes the members, ascending by checkpoint. A checkpoint without output is one row with a null name.
pub(crate) fn encode(members: &[CommitMember]) -> Result<Bytes> {
    let failed = |e: &dyn std::fmt::Display| Error::invalid(format!("a commit object cannot be encoded: {e}"));
    let mut rows: Vec<(String, Option<&OutputFile>)> = Vec::new();
    let mut leaves = Vec::new();
    for member in members {
        leaves.extend(std::iter::repeat_n(member.leaves, member.outputs.len().max(1)));
        let id = member.checkpoint.to_string();
        if member.outputs.is_empty() {
            rows.push((id.clone(), None));
        }
        rows.extend(member.outputs.iter().map(|output| (id.clone(), Some(output))));
    }
    let text = |get: fn(&OutputFile) -> &str| -> ArrayRef {
        Arc::new(rows.iter().map(|(_, o)| o.map(get)).collect::<StringArray>())
    };
    let number = |get: fn(&OutputFile) -> u64| -> ArrayRef {
        Arc::new(rows.iter().map(|(_, o)| o.map(get)).collect::<UInt64Array>())
    };
    let ids: ArrayRef = Arc::new(rows.iter().map(|(id, _)| Some(id.as_str())).collect::<StringArray>());
    let mut fields = vec![
        Field::new("checkpoint", DataType::Utf8, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("folder", DataType::Utf8, true),
        Field::new("size", DataType::UInt64, true),
        Field::new("rows", DataType::UInt64, true),
        Field::new("upload", DataType::Utf8, true),
    ];
    let uploads: ArrayRef = Arc::new(
        rows.iter().map(|(_, o)| o.and_then(|o| o.upload.as_ref()).map(Upload::to_text)).collect::<StringArray>(),
    );
    let mut columns =
        vec![ids, text(|o| &o.name), text(|o| &o.folder), number(|o| o.size), number(|o| o.rows), uploads];
    if members.iter().any(|member| member.leaves) {
        columns.push(Arc::new(leaves.into_iter().map(Some).collect::<BooleanArray>()));
        fields.push(Field::new("leaves", DataType::Boolean, false));
    }
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(|e| failed(&e))?;
    let mut writer = ArrowWriter::try_new(Vec::new(), schema, None).map_err(|e| failed(&e))?;
    writer.write(&batch).map_err(|e| failed(&e))?;
    writer.into_inner().map(Bytes::from).map_err(|e| failed(&e))
}

/// Decodes the object `bytes`, found at `place`.
pub(crate) fn decode(place: &str, bytes: Bytes) -> Result<Vec<CommitMember>> {
    let damaged = |why: &dyn std::fmt::Display| Error::corrupt(place, format!("this commit object is damaged: {why}"));
    let mut members: Vec<CommitMember> = Vec::new();
    bounded::read("commit object", place, bytes, |batch| {
        let column = |name: &str| batch.column_by_name(name).ok_or_else(|| damaged(&format!("no column `{name}`")));
        let bad_type = || damaged(&"a column has another type");
        let text = |name| column(name)?.as_string_opt::<i32>().ok_or_else(bad_type);
        let number = |name| column(name)?.as_primitive_opt::<UInt64Type>().ok_or_else(bad_type);
        let (ids, names, folders) = (text("checkpoint")?, text("name")?, text("folder")?);
        let (sizes, rows) = (number("size")?, number("rows")?);
        // Objects of destinations on disks need not have it.
        let uploads = batch.column_by_name("upload").map(|_| text("upload")).transpose()?;
        // Nor those that take nothing out this one.
        let leaves = batch.column_by_name("leaves");
        let leaves = leaves.map(|column| column.as_boolean_opt().ok_or_else(bad_type)).transpose()?;
        for row in 0..batch.num_rows() {
            let checkpoint: CheckpointId = ids.value(row).parse().map_err(|e| damaged(&e))?;
            if members.last().is_none_or(|last| last.checkpoint != checkpoint) {
                let leaves = leaves.is_some_and(|leaves| leaves.value(row));
                members.push(CommitMember { checkpoint, outputs: Vec::new(), leaves });
            }
            if let (true, Some(member)) = (names.is_valid(row), members.last_mut()) {
                let output = OutputFile {
                    name: names.value(row).to_owned(),
                    folder: folders.value(row).to_owned(),
                    size: sizes.value(row),
                    rows: rows.value(row),
                    upload: match uploads.filter(|uploads| uploads.is_valid(row)) {
                        Some(uploads) => {
                            Some(Upload::from_text(uploads.value(row)).ok_or_else(|| damaged(&"an upload"))?)
                        }
                        None => None,
                    },
                };
                output.check(place)?;
                member.outputs.push(output);
            }
        }
        Ok(())
    })?;
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Epoch, InputId};

    #[test]
    fn members_round_trip() {
        let output = |name: &str| OutputFile {
            name: name.into(),
            folder: "a=1/b=é".into(),
            size: 7,
            rows: 0,
            upload: (name == "y").then(|| Upload { id: "u\"".into(), parts: vec!["1".into(), "2".into()] }),
        };
        let member =
            |i, outputs| CommitMember { checkpoint: CheckpointId::first(Epoch(1), InputId(i)), outputs, leaves: false };
        let members = vec![member(1, vec![output("x"), output("y")]), member(2, vec![]), member(9, vec![output("z")])];
        assert_eq!(decode("here", encode(&members).unwrap()).unwrap(), members);
        assert_eq!(decode("here", encode(&[]).unwrap()).unwrap(), []);
        let leaving = vec![CommitMember { leaves: true, ..members[0].clone() }, members[2].clone()];
        assert_eq!(decode("here", encode(&leaving).unwrap()).unwrap(), leaving);
    }

    #[test]
    fn a_forged_object_names_nothing_outside_the_destination() {
        for (name, folder) in [
            ("../x", ""),
            ("x", ".."),
            ("x", "a/../.."),
            ("x", "/etc"),
            ("", "a"),
            ("a/b", ""),
            ("x", "a//b"),
            ("..", ""),
        ] {
            let output = OutputFile { name: name.into(), folder: folder.into(), size: 1, rows: 1, upload: None };
            let checkpoint = CheckpointId::first(Epoch(1), InputId(1));
            let member = CommitMember { checkpoint, outputs: vec![output], leaves: false };
            let error = decode("here", encode(&[member]).unwrap()).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Corrupt, "{name:?} in {folder:?}");
            assert!(error.what().contains("not below the destination"), "{error}");
        }
    }
}
