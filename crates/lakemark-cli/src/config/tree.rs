//! Settings as written, before they are typed: a job file as a tree in which each value knows its place, with flags put
//! over it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use lakemark::{Error, Result};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::env::{Env, expand};
use super::section::nearest;
use super::values::reject;

pub(super) type Table = BTreeMap<String, Item>;

/// A value and where it was written: `file:line`, or the flag. Not `Debug`: it can hold credentials.
pub(super) struct Item {
    pub(super) place: String,
    pub(super) value: Value,
}

pub(super) enum Value {
    Text(String),
    /// A number, boolean or date, as text.
    Bare(String),
    List(Vec<Item>),
    Table(Table),
}

impl Item {
    pub(super) fn table(place: impl Into<String>) -> Self {
        Self { place: place.into(), value: Value::Table(Table::new()) }
    }

    fn as_table(&mut self, key: &str) -> Result<&mut Table> {
        match &mut self.value {
            Value::Table(table) => Ok(table),
            other => Err(reject(&self.place, other, key, "a table")),
        }
    }

    /// The `name` in a table.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.value {
            Value::Table(table) => match &table.get("name")?.value {
                Value::Text(name) => Some(name),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The settings of the job file `text`, which is called `name` in messages.
pub(super) fn parse_file(name: &str, text: &str, env: Env<'_>) -> Result<Item> {
    let place = |span: Range<usize>| {
        let before = text.as_bytes().iter().take(span.start);
        format!("{name}:{}", before.filter(|byte| **byte == b'\n').count() + 1)
    };
    // The error's own text quotes the line, which can hold a credential.
    let root = DeTable::parse(text).map_err(|error| {
        let what = format!("the job file is not TOML: {}", error.message());
        Error::invalid(what).at(error.span().map_or_else(|| name.to_owned(), place))
    })?;
    let reader = Reader { place: &place, env };
    Ok(Item { place: name.to_owned(), value: Value::Table(reader.table(root.into_inner(), "")?) })
}

/// A text given by a flag.
pub(super) fn flag_text(flag: &str, key: &str, text: &str, env: Env<'_>) -> Result<Item> {
    Ok(Item { place: flag.to_owned(), value: Value::Text(expand(text, key, flag, env)?) })
}

/// A list of texts given by a flag.
pub(super) fn flag_list(flag: &str, key: &str, texts: &[String], env: Env<'_>) -> Result<Item> {
    let items = texts.iter().map(|text| flag_text(flag, key, text, env)).collect::<Result<_>>()?;
    Ok(Item { place: flag.to_owned(), value: Value::List(items) })
}

/// A value given by a flag: a list, table or quoted text as in TOML, else a text as it stands.
pub(super) fn flag_value(flag: &str, key: &str, text: &str, env: Env<'_>) -> Result<Item> {
    match DeValue::parse(text).map(Spanned::into_inner) {
        Ok(value @ (DeValue::String(_) | DeValue::Array(_) | DeValue::Table(_))) => {
            Reader { place: &|_| flag.to_owned(), env }.item(value, key, flag.to_owned())
        }
        _ => flag_text(flag, key, text, env),
    }
}

/// The steps of a dotted key, or nothing if it is not one.
pub(super) fn steps(key: &str) -> Option<Vec<String>> {
    let text = format!("{key} = 0");
    let mut table = DeTable::parse(&text).ok()?.into_inner();
    let mut steps = Vec::new();
    loop {
        let (key, value) = table.into_iter().next()?;
        steps.push(key.into_inner().into_owned());
        match value.into_inner() {
            DeValue::Table(next) => table = next,
            _ => return Some(steps),
        }
    }
}

/// Puts `item` at `steps`; the second step below `source` is the name of one. Tables are merged, all else is replaced.
pub(super) fn put(root: &mut Item, steps: &[String], item: Item) -> Result<()> {
    let mut slot = root;
    let mut path = String::new();
    for step in steps {
        slot = if path == "source" { source(slot, step, &item.place)? } else { child(slot, step, &path, &item.place)? };
        path = join(&path, step);
    }
    merge(slot, item);
    Ok(())
}

/// Takes out the value of the top-level `key`.
pub(super) fn remove(root: &mut Item, key: &str) -> Result<()> {
    root.as_table("")?.remove(key);
    Ok(())
}

/// The sources as written.
pub(super) fn sources(root: &mut Item) -> Result<&mut Vec<Item>> {
    let place = root.place.clone();
    as_sources(child(root, "source", "", &place)?)
}

fn as_sources(list: &mut Item) -> Result<&mut Vec<Item>> {
    match &mut list.value {
        Value::List(sources) => Ok(sources),
        other => Err(reject(&list.place, other, "source", "a list of tables, each written as [[source]]")),
    }
}

fn source<'a>(list: &'a mut Item, name: &str, place: &str) -> Result<&'a mut Item> {
    let sources = as_sources(list)?;
    let Some(index) = sources.iter().position(|source| source.name() == Some(name)) else {
        let names: Vec<_> = sources.iter().filter_map(Item::name).collect();
        let error = Error::invalid(format!("no source is named `{name}`")).at(place);
        return Err(match nearest(name, &names) {
            Some(name) => error.way(format!("did you mean `{}`?", join("source", name))),
            None if names.is_empty() => error.way(format!("add it with --source {name}=URL")),
            None => error.way(format!("the sources are {}", names.join(", "))),
        });
    };
    Ok(&mut sources[index])
}

fn child<'a>(parent: &'a mut Item, key: &str, path: &str, place: &str) -> Result<&'a mut Item> {
    let empty = if path.is_empty() && key == "source" { Value::List(Vec::new()) } else { Value::Table(Table::new()) };
    Ok(parent.as_table(path)?.entry(key.to_owned()).or_insert(Item { place: place.to_owned(), value: empty }))
}

fn merge(slot: &mut Item, item: Item) {
    match (&mut slot.value, item.value) {
        (Value::Table(old), Value::Table(new)) => {
            for (key, item) in new {
                match old.get_mut(&key) {
                    Some(slot) => merge(slot, item),
                    None => drop(old.insert(key, item)),
                }
            }
        }
        (_, value) => *slot = Item { place: item.place, value },
    }
}

/// Whether the values below the dotted `key` are credentials.
pub(super) fn is_secret(key: &str) -> bool {
    key.contains("storage_options")
}

/// `key` below the dotted `path`.
pub(super) fn join(path: &str, key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let quoted = if !key.is_empty() && key.chars().all(bare) { key.to_owned() } else { format!("{key:?}") };
    if path.is_empty() { quoted } else { format!("{path}.{quoted}") }
}

/// The element of the list at the dotted `path`; sources go by their names.
pub(super) fn element(path: &str, index: usize, name: Option<&str>) -> String {
    match name {
        Some(name) if path == "source" => join(path, name),
        _ => format!("{path}[{index}]"),
    }
}

/// Turns TOML into items.
struct Reader<'a> {
    place: &'a dyn Fn(Range<usize>) -> String,
    env: Env<'a>,
}

impl Reader<'_> {
    fn item(&self, value: DeValue<'_>, path: &str, place: String) -> Result<Item> {
        let value = match value {
            DeValue::String(text) => Value::Text(expand(&text, path, &place, self.env)?),
            DeValue::Integer(number) => Value::Bare(number.to_string()),
            DeValue::Float(number) => Value::Bare(number.to_string()),
            DeValue::Boolean(yes) => Value::Bare(yes.to_string()),
            DeValue::Datetime(time) => Value::Bare(time.to_string()),
            DeValue::Table(table) => Value::Table(self.table(table, path)?),
            DeValue::Array(items) => Value::List(self.list(items, path)?),
        };
        Ok(Item { place, value })
    }

    fn table(&self, table: DeTable<'_>, path: &str) -> Result<Table> {
        let one = |(key, value): (Spanned<Cow<'_, str>>, Spanned<DeValue<'_>>)| {
            let place = (self.place)(key.span());
            let key = key.into_inner().into_owned();
            let item = self.item(value.into_inner(), &join(path, &key), place)?;
            Ok((key, item))
        };
        table.into_iter().map(one).collect()
    }

    fn list(&self, items: DeArray<'_>, path: &str) -> Result<Vec<Item>> {
        let one = |(index, item): (usize, Spanned<DeValue<'_>>)| {
            let place = (self.place)(item.span());
            let name = item.get_ref().get("name").and_then(|name| name.get_ref().as_str().map(str::to_owned));
            self.item(item.into_inner(), &element(path, index, name.as_deref()), place)
        };
        items.into_iter().enumerate().map(one).collect()
    }
}
