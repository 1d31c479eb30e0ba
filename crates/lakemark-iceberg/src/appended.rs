//! What a table is made of once files are appended to it: as it is, or with columns that they bring along.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{Field, FieldRef, Schema as ArrowSchema};
use iceberg::spec::{NestedField, NestedFieldRef, PartitionSpec, Schema, SchemaRef, TableMetadata, Transform, Type};
use lakemark::{Error, Result, SchemaMode};

use crate::schema::{columns_of, id_of, new_schema, number_added, type_of};

/// What a table is, or is to be, made of.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) schema: SchemaRef,
    /// The highest id that was ever given to a column.
    last_column_id: i32,
    /// The columns by whose values it is partitioned.
    pub(crate) partition_by: Vec<String>,
    /// The names of all that it was ever partitioned by, which no column can get.
    partitions: HashSet<String>,
}

impl Shape {
    /// Of a table that is there.
    pub(crate) fn of_table(metadata: &TableMetadata) -> Self {
        let schema = Arc::clone(metadata.current_schema());
        let partition_by = columns_of_spec(metadata.default_partition_spec(), &schema);
        let specs =
            metadata.partition_specs_iter().flat_map(|spec| spec.fields().iter().map(|field| field.name.clone()));
        Self { last_column_id: metadata.last_column_id(), partition_by, partitions: specs.collect(), schema }
    }

    /// Of a new table of the columns `rows`.
    ///
    /// # Errors
    /// As [`new_schema`].
    pub(crate) fn of_rows(rows: &ArrowSchema, partition_by: &[String]) -> Result<Self> {
        let schema = new_schema(rows)?;
        Ok(Self {
            last_column_id: schema.highest_field_id(),
            partition_by: partition_by.to_vec(),
            partitions: HashSet::new(),
            schema: Arc::new(schema),
        })
    }
}

/// The columns whose values, as they are, `spec` partitions by.
fn columns_of_spec(spec: &PartitionSpec, schema: &Schema) -> Vec<String> {
    let identities = spec.fields().iter().filter(|field| field.transform == Transform::Identity);
    identities.filter_map(|field| schema.name_by_field_id(field.source_id)).map(str::to_owned).collect()
}

/// What a commit adds to a table: columns that it lacks, by the ids that files have for them.
#[derive(Debug)]
pub(crate) struct Appended<'a> {
    table: &'a Shape,
    /// Each with where it was first found.
    added: Vec<(FieldRef, String)>,
}

impl<'a> Appended<'a> {
    /// Nothing, so far.
    pub(crate) fn to(table: &'a Shape) -> Self {
        Self { table, added: Vec::new() }
    }

    /// Takes files of the columns `rows`, found at `place`, in which those by which the table is partitioned need not be.
    ///
    /// # Errors
    /// [`Refused`](lakemark::ErrorKind::Refused), naming the column that does not fit the table, or what was taken before.
    pub(crate) fn take(&mut self, rows: &ArrowSchema, mode: SchemaMode, place: &str) -> Result<()> {
        self.take_from(rows, mode, place).map_err(|error| error.at(place))
    }

    fn take_from(&mut self, rows: &ArrowSchema, mode: SchemaMode, place: &str) -> Result<()> {
        let known = self.table.schema.as_struct().fields();
        for field in rows.fields() {
            match known.iter().find(|column| column.name == *field.name()) {
                Some(column) => check_same(field, column, mode)?,
                None => self.add(field, mode, place)?,
            }
        }
        let lacking = known.iter().find(|column| {
            column.required
                && rows.field_with_name(&column.name).is_err()
                && !self.table.partition_by.contains(&column.name)
        });
        match lacking {
            None => Ok(()),
            Some(column) => {
                Err(refuse(format!("the query lacks column `{}`, which is required in the table", column.name)))
            }
        }
    }

    /// Takes a column that the table lacks.
    fn add(&mut self, field: &FieldRef, mode: SchemaMode, place: &str) -> Result<()> {
        let name = field.name();
        let known = || self.table.schema.as_struct().fields().iter().map(|column| &column.name);
        let others = known().chain(self.added.iter().map(|(field, _)| field.name()));
        if let Some(other) =
            others.into_iter().find(|other| other.to_lowercase() == name.to_lowercase() && *other != name)
        {
            let what = format!("there is a column `{other}`, and the query has `{name}`: to many readers they are one");
            return Err(refuse(what).way(format!("name it so: AS \"{other}\"")));
        }
        if mode == SchemaMode::Fail {
            let names: Vec<_> = known().map(|column| format!("`{column}`")).collect();
            return Err(refuse(format!("the table has no column `{name}`; it has {}", names.join(", ")))
                .way("let the commit add it: schema_mode = \"merge\" in [sink], or --set sink.schema_mode=merge")
                .way("or add the column to the table first (ALTER TABLE ... ADD COLUMN)"));
        }
        if name.contains('.') || self.table.partitions.contains(name) {
            let why = if name.contains('.') { "a name with a dot" } else { "the name of a partition" };
            return Err(refuse(format!("column `{name}` cannot be added to the table: it has {why}"))
                .way("give the column another name in the query with AS"));
        }
        match self.added.iter().find(|(added, _)| added.name() == name) {
            Some((added, _)) if column_of(added) == column_of(field) => {}
            Some((added, _)) => {
                let shown = |field: &Field| format!("{} with the id {}", shown_type(field), id_of(field));
                return Err(refuse(format!(
                    "column `{name}`, which the table is to get, is {} in some files and {} in others",
                    shown(added),
                    shown(field)
                )));
            }
            None => self.added.push((Arc::clone(field), place.to_owned())),
        }
        Ok(())
    }

    /// The columns to add, in the order in which the table gets them.
    ///
    /// # Errors
    /// [`Refused`](lakemark::ErrorKind::Refused), naming the column that the table would give another id than its files have:
    /// somebody else has taken that meanwhile, and readers would find other values by it.
    pub(crate) fn columns(self) -> Result<Vec<NestedFieldRef>> {
        let Self { table, mut added } = self;
        added.sort_by_key(|(field, _)| id_of(field));
        let mut last = table.last_column_id;
        let check = |(field, place): &(FieldRef, String)| {
            let (name, id) = (field.name(), id_of(field));
            let given = number_added(field, &mut last);
            match column_of(field) {
                Some(column) if column_of(&given).as_ref() == Some(&column) => Ok(column),
                _ => {
                    let taken = table.schema.name_by_field_id(id).map(|other| format!(", which is that of `{other}`"));
                    let has = match id {
                        0 => "without an id".to_owned(),
                        id => format!("by the id {id}{}", taken.unwrap_or_default()),
                    };
                    let gives = id_of(&given);
                    let what = format!("the files have column `{name}` {has}, and the table would give it {gives}");
                    Err(by_other_ids(what).at(place))
                }
            }
        };
        added.iter().map(check).collect()
    }
}

fn refuse(what: String) -> Error {
    Error::refused(what).safe("nothing was written to the table").way("change the query so that it fits the table")
}

/// Files that readers would find other values in than they hold.
fn by_other_ids(what: String) -> Error {
    Error::refused(what)
        .safe("nothing was written to the table")
        .way("run again, once no older files wait: new ones are written by the ids that the table gives now")
}

/// `field` as a column of a table; `None` for one of a type that is none of Iceberg's.
fn column_of(field: &FieldRef) -> Option<NestedFieldRef> {
    columns_of(&vec![Arc::clone(field)].into())?.pop()
}

fn shown_type(field: &Field) -> String {
    type_of(field.data_type()).map_or_else(|| field.data_type().to_string(), |of| shown(&of))
}

/// Checks that the values of `field` can be those of `column`, which has its name.
fn check_same(field: &Field, column: &NestedField, mode: SchemaMode) -> Result<()> {
    let name = field.name();
    let ours = type_of(field.data_type()).filter(|ours| is_same(ours, &column.field_type, false));
    let Some(ours) = ours else {
        let refused = refuse(format!(
            "column `{name}` is {} in the query and {} in the table",
            shown_type(field),
            shown(&column.field_type)
        ))
        .way(format!("cast it in the query, for example CAST({name} AS ...)"));
        return Err(match mode {
            SchemaMode::Fail => refused,
            SchemaMode::Merge => refused.way(
                "change the table with its own tools: schema_mode = \"merge\" adds columns; it widens no type, and adds no \
                 field within a column",
            ),
        });
    };
    if id_of(field) != column.id || !is_same(&ours, &column.field_type, true) {
        return Err(by_other_ids(format!(
            "column `{name}` has another id in the table ({}) than in the files ({}): the column, or the table, was made anew",
            column.id,
            id_of(field)
        )));
    }
    if column.required || has_required(&column.field_type) {
        let within = if column.required { "" } else { " has something within that" };
        return Err(refuse(format!(
            "column `{name}` of the table{within} is required, which is not checked in this version"
        ))
        .way("make it optional in the table (ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL)"));
    }
    Ok(())
}

fn shown(of: &Type) -> String {
    match of {
        Type::Primitive(of) => of.to_string(),
        other => serde_json::to_string(other).unwrap_or_else(|_| other.to_string()),
    }
}

/// Whether something within a type must not be null; keys of maps never are.
fn has_required(of: &Type) -> bool {
    let field = |field: &NestedFieldRef| field.required || has_required(&field.field_type);
    match of {
        Type::Primitive(_) => false,
        Type::List(list) => field(&list.element_field),
        Type::Map(map) => has_required(&map.key_field.field_type) || field(&map.value_field),
        Type::Struct(of) => of.fields().iter().any(field),
    }
}

/// Whether two types hold the same values and, if asked, by the same ids; what is required within them is not compared.
fn is_same(a: &Type, b: &Type, by_id: bool) -> bool {
    let field = |a: &NestedFieldRef, b: &NestedFieldRef| {
        (!by_id || a.id == b.id) && a.name == b.name && is_same(&a.field_type, &b.field_type, by_id)
    };
    match (a, b) {
        (Type::Primitive(a), Type::Primitive(b)) => a == b,
        (Type::List(a), Type::List(b)) => field(&a.element_field, &b.element_field),
        (Type::Map(a), Type::Map(b)) => field(&a.key_field, &b.key_field) && field(&a.value_field, &b.value_field),
        (Type::Struct(a), Type::Struct(b)) => {
            let (a, b) = (a.fields(), b.fields());
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| field(a, b))
        }
        _ => false,
    }
}
