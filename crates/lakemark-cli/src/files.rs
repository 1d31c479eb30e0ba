//! `lakemark files`: one row a known file.

use std::fs::File;
use std::io::Write;

use datafusion::arrow::array::{Array, BooleanArray, RecordBatch, StringArray};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::arrow::util::pretty::pretty_format_batches;
use lakemark::store::Head;
use lakemark::{Error, ObjectCheckpointStore, Pattern, Result, Root};
use lakemark_datafusion::{Outcome, files_batch};
use parquet::arrow::ArrowWriter;
use serde_json::{Map, Value, json};

use crate::args::{FilesArgs, Form, OutputArgs};
use crate::render;
use crate::status::open_view;
use crate::{Ended, Failure};

pub(crate) async fn files(args: &FilesArgs, output: &OutputArgs) -> Ended {
    let pattern = args.glob.as_ref().map(|glob| Pattern::new(glob.clone())).transpose().map_err(Failure::usage)?;
    let (store, view) = open_view(&args.job).await?;
    if let Some(path) = &args.out {
        check_apart(path, &store, view.head.as_ref())?;
    }
    let rows = select(&files_batch(&view)?, args, pattern.as_ref())?;
    let text = if output.json {
        json!({ "store": store.root().to_string(), "files": documents(&rows)? }).to_string()
    } else {
        match args.form {
            Form::Table => pretty_format_batches(std::slice::from_ref(&rows)).map_err(unwritable)?.to_string(),
            Form::Csv => csv(&rows)?,
            Form::Parquet => String::new(),
        }
    };
    match &args.out {
        None => render::line(&text),
        Some(path) => {
            let failed =
                |e: std::io::Error| Error::invalid("the file cannot be written").at(path.display()).caused_by(e);
            let mut file = File::create(path).map_err(failed)?;
            if args.form == Form::Parquet && !output.json {
                let mut writer = ArrowWriter::try_new(file, rows.schema(), None).map_err(unwritable)?;
                writer.write(&rows).map_err(unwritable)?;
                writer.close().map_err(unwritable)?;
            } else {
                writeln!(file, "{text}").map_err(failed)?;
            }
        }
    }
    Ok(Outcome::Done)
}

/// A file within a store or a destination would be taken for a part of it.
fn check_apart(path: &std::path::Path, store: &ObjectCheckpointStore, head: Option<&Head>) -> Result<()> {
    let to = Root::parse(&path.to_string_lossy())?.resolved();
    let sink = head.and_then(|head| head.manifest.sink.as_ref()).map(|sink| &sink.root);
    match [Some(store.root()), sink].into_iter().flatten().find(|root| root.resolved().contains(&to)) {
        None => Ok(()),
        Some(root) => Err(Error::refused(format!("the file would be inside {root}"))
            .at(path.display())
            .safe("nothing was written")
            .way("write it somewhere else")),
    }
}

fn unwritable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid("the rows cannot be written").caused_by(error)
}

fn select(rows: &RecordBatch, args: &FilesArgs, pattern: Option<&Pattern>) -> Result<RecordBatch> {
    let (paths, states) = (text(rows, "path")?, text(rows, "state")?);
    let keep: BooleanArray = (0..rows.num_rows())
        .map(|row| {
            let pending = !args.pending || states.value(row) == "partly done";
            Some(pending && !args.failed && pattern.is_none_or(|pattern| pattern.matches(paths.value(row))))
        })
        .collect();
    filter_record_batch(rows, &keep).map_err(unwritable)
}

fn text<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a StringArray> {
    let column = rows.column_by_name(name).and_then(|column| column.as_any().downcast_ref());
    column.ok_or_else(|| Error::invalid(format!("the table of files has no text column `{name}`")))
}

/// The rows as text, cell by cell; `None` is null.
fn cells(rows: &RecordBatch) -> Result<Vec<Vec<Option<String>>>> {
    let options = FormatOptions::default();
    let columns = rows.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
    let columns = columns.collect::<std::result::Result<Vec<_>, _>>().map_err(unwritable)?;
    let cell = |row: usize, i: usize| rows.column(i).is_valid(row).then(|| columns[i].value(row).to_string());
    Ok((0..rows.num_rows()).map(|row| (0..columns.len()).map(|i| cell(row, i)).collect()).collect())
}

fn csv(rows: &RecordBatch) -> Result<String> {
    let quoted = |text: &str| match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let names: Vec<_> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
    let mut lines = vec![names.join(",")];
    for row in cells(rows)? {
        let row: Vec<String> = row.iter().map(|cell| quoted(cell.as_deref().unwrap_or(""))).collect();
        lines.push(row.join(","));
    }
    Ok(lines.join("\n"))
}

fn documents(rows: &RecordBatch) -> Result<Vec<Value>> {
    let schema = rows.schema();
    let typed = |name: &str, cell: Option<String>| match cell {
        None => Value::Null,
        Some(text) => match schema.field_with_name(name).map(|field| field.data_type().is_numeric()) {
            Ok(true) => text.parse::<u64>().map_or(Value::String(text), Value::from),
            _ if matches!(name, "committed" | "blessed") => Value::Bool(text == "true"),
            _ => Value::String(text),
        },
    };
    let row = |cells: Vec<Option<String>>| {
        let pairs = schema.fields().iter().zip(cells);
        Value::Object(pairs.map(|(f, cell)| (f.name().clone(), typed(f.name(), cell))).collect::<Map<_, _>>())
    };
    Ok(cells(rows)?.into_iter().map(row).collect())
}
