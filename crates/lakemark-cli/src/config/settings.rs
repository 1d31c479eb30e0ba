//! The keys of a job with their types and defaults. A line here is all a new key needs to be read and checked.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use lakemark::{Error, Result, StorageOptions};
use lakemark_iceberg::CatalogOptions;

use super::section::Section;
use super::tree::{Item, Value, element, join};
use super::values::{
    Bytes, Compression, CsvTypes, Format, Letter, MaxReplaced, Mode, OnChange, OnDelete, OnDuplicate, OnError, OnMoved,
    OnNull, Role, SchemaMode, Setting, SinkKind, reject,
};

/// A table of settings.
pub(super) trait Settings: Default {
    /// The keys whose value is not the default.
    fn changed(&self) -> Vec<&'static str>;
}

/// A struct of settings: `field: Type = default`, with `as "key"` where the key differs.
macro_rules! settings {
    (@key $field:ident $key:literal) => { $key };
    (@key $field:ident) => { stringify!($field) };
    ($($(#[$meta:meta])* $name:ident requires [$($required:literal),*] {
        $($(#[$note:meta])* $field:ident $(as $key:literal)?: $type:ty = $default:expr,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) struct $name {
            $($(#[$note])* pub(crate) $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl Settings for $name {
            fn changed(&self) -> Vec<&'static str> {
                let default = Self::default();
                let keys = [$((settings!(@key $field $($key)?), self.$field != default.$field),)*];
                keys.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect()
            }
        }

        impl Setting for $name {
            fn read(item: Item, key: &str) -> Result<Self> {
                let mut section = Section::open(item, key)?;
                $(section.require($required);)*
                let read = Self { $($field: section.get(settings!(@key $field $($key)?), $default),)* };
                section.finish(read)
            }
        }
    )*};
}

settings! {
    /// One job: from sources through a transform to a sink.
    JobConfig requires [] {
        /// The URL of the store, if given. [`JobConfig::store_url`] knows the default.
        store: Option<String> = None,
        sources as "source": Vec<SourceConfig> = Vec::new(),
        transform: TransformConfig = TransformConfig::default(),
        sink: SinkConfig = SinkConfig::default(),
        run: RunConfig = RunConfig::default(),
    }

    /// `[[source]]`
    SourceConfig requires ["name", "url"] {
        /// The table name in SQL, and the name under which the store keeps the source.
        name: String = String::new(),
        /// A directory, glob or file.
        url: String = String::new(),
        format: Format = Format::Parquet,
        /// How CSV files are written.
        csv: CsvConfig = CsvConfig::default(),
        mode: Mode = Mode::Files,
        /// The key columns of rows mode.
        on: Vec<String> = Vec::new(),
        /// As the format has it, if not given: see [`SourceConfig::on_change`].
        on_change: Option<OnChange> = None,
        on_moved: OnMoved = OnMoved::Fail,
        on_delete: OnDelete = OnDelete::Keep,
        on_duplicate: OnDuplicate = OnDuplicate::First,
        /// Of a key column, in rows mode.
        on_null: OnNull = OnNull::Equal,
        /// Whether the values of keys are kept in the store, beside their fingerprints.
        key_values: bool = true,
        max_replaced: MaxReplaced = MaxReplaced::Percent(10.0),
        role: Role = Role::Tracked,
        /// Of a database or catalog.
        table: Option<String> = None,
        /// That an Iceberg table is in.
        catalog: CatalogConfig = CatalogConfig::default(),
        storage_options: StorageOptions = StorageOptions::default(),
    }

    /// `csv` of a source.
    CsvConfig requires [] {
        header: bool = true,
        /// One character.
        delimiter: Letter = Letter(b','),
        quote: Letter = Letter(b'"'),
        types: CsvTypes = CsvTypes::Infer,
    }

    /// `[transform]`
    TransformConfig requires [] {
        /// The query, if given. [`JobConfig::sql`] knows the default.
        sql: Option<String> = None,
        /// A command and its arguments.
        map: Vec<String> = Vec::new(),
        fingerprint: Option<String> = None,
    }

    /// `[sink]`
    SinkConfig requires ["kind"] {
        kind: SinkKind = SinkKind::Parquet,
        /// Absent only with kind none.
        url: Option<String> = None,
        partition_by: Vec<String> = Vec::new(),
        /// Of a table.
        schema_mode: SchemaMode = SchemaMode::Fail,
        compression: Compression = Compression::Zstd(3),
        /// In rows.
        max_row_group_size: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1_048_575),
        target_file_size: Option<Bytes> = None,
        catalog: CatalogConfig = CatalogConfig::default(),
        storage_options: StorageOptions = StorageOptions::default(),
    }

    /// `catalog` of an Iceberg table.
    CatalogConfig requires [] {
        kind as "type": Option<String> = None,
        uri: Option<String> = None,
        warehouse: Option<String> = None,
        /// `namespace.name`.
        table: Option<String> = None,
        /// By which catalogs in one database are told apart.
        name: Option<String> = None,
        /// What else the catalog takes, such as `token`.
        properties: StorageOptions = StorageOptions::default(),
    }

    /// `[run]`
    RunConfig requires [] {
        /// Tasks at once.
        concurrency: NonZeroUsize = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        task_bytes: Bytes = Bytes(128 << 20),
        /// 0: whole row groups.
        task_rows: u64 = 0,
        /// 0: no limit.
        max_tasks: u64 = 0,
        retries: u32 = 2,
        task_timeout: Option<Duration> = None,
        on_error: OnError = OnError::Fail,
        commit_every: Duration = Duration::from_secs(15 * 60),
        memory: Option<Bytes> = None,
        key_memory: Bytes = Bytes(2 << 30),
        /// What running tasks get after the first signal.
        grace: Duration = Duration::from_secs(25),
        /// How long a silent holder keeps the store.
        lease: Duration = Duration::from_secs(60),
        /// How often a holder shows that it lives.
        beat: Duration = Duration::from_secs(10),
    }
}

impl Setting for Vec<SourceConfig> {
    fn read(item: Item, key: &str) -> Result<Self> {
        let Value::List(items) = item.value else {
            return Err(reject(&item.place, &item.value, key, "a list of tables, each written as [[source]]"));
        };
        let path = |(index, item): (usize, &Item)| element(key, index, item.name());
        let paths: Vec<_> = items.iter().enumerate().map(path).collect();
        items.into_iter().zip(paths).map(|(item, path)| SourceConfig::read(item, &path)).collect()
    }
}

impl SourceConfig {
    /// What to do about other content: a table is not changed without a word.
    pub(crate) fn on_change(&self) -> OnChange {
        self.on_change.unwrap_or(if self.format.is_table() { OnChange::Fail } else { OnChange::Reprocess })
    }

    /// Its path in the configuration.
    pub(crate) fn section(&self) -> String {
        join("source", &self.name)
    }
}

impl CatalogConfig {
    /// The settings by their keys.
    fn to_map(&self) -> BTreeMap<String, String> {
        let own = [
            ("type", &self.kind),
            ("uri", &self.uri),
            ("warehouse", &self.warehouse),
            ("table", &self.table),
            ("name", &self.name),
        ];
        let own = own.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)));
        let others = self.properties.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        others.chain(own).collect()
    }

    /// The catalog that the Iceberg table of `section` is in.
    ///
    /// # Errors
    /// [`Invalid`](lakemark::ErrorKind::Invalid), also when no setting is given.
    pub(crate) fn parse(&self, section: &str) -> Result<CatalogOptions> {
        let settings = self.to_map();
        if settings.is_empty() {
            let example = "{ type = \"sql\", uri = \"sqlite:////path/to/catalog.db\", table = \"namespace.name\" }";
            let what = format!("`{section}.catalog` is missing: an Iceberg table is known by its catalog");
            return Err(Error::invalid(what)
                .safe("nothing was read or written")
                .way("give the job, not only its store")
                .way(format!("add catalog = {example} to `{section}`")));
        }
        CatalogOptions::parse(&settings)
    }
}

impl JobConfig {
    /// Where the store is: as given, else beside the sink.
    pub(crate) fn store_url(&self) -> String {
        self.store.clone().or_else(|| self.store_beside_sink()).unwrap_or_default()
    }

    /// How the store is reached.
    pub(crate) fn store_options(&self) -> &StorageOptions {
        match (self.sink.kind, self.tracked().next()) {
            (SinkKind::None, Some(source)) => &source.storage_options,
            _ => &self.sink.storage_options,
        }
    }

    /// The query: as given, else everything of the one tracked source.
    pub(crate) fn sql(&self) -> String {
        self.transform.sql.clone().unwrap_or_else(|| {
            let name = self.tracked().next().map_or("", |source| &source.name);
            format!("SELECT * FROM \"{}\"", name.replace('"', "\"\""))
        })
    }

    /// The sources whose work is recorded.
    pub(crate) fn tracked(&self) -> impl Iterator<Item = &SourceConfig> {
        self.sources.iter().filter(|source| source.role == Role::Tracked)
    }

    /// Checks what every verb needs: that there is one place for the store.
    pub(super) fn check_store(&self) -> Result<()> {
        if self.store.is_some() || self.store_beside_sink().is_some() {
            return Ok(());
        }
        let error =
            Error::invalid("no store is named, and there is none by default").way("set `store`, or give --store URL");
        Err(match (&self.sink.url, self.sink.kind) {
            (Some(url), _) => error.at(format!("sink.url = {url:?}: nothing can be put beside it")),
            (None, SinkKind::None) => error.at("sink.kind = \"none\": there is no sink to put it beside"),
            (None, _) => error.at("sink.url, which is not given").way("set `sink.url`, or give --sink KIND:URL"),
        })
    }

    /// `<sink url>.lakemark/store`, unless that would be another bucket or a name such as `..lakemark`.
    fn store_beside_sink(&self) -> Option<String> {
        let url = self.sink.url.as_deref()?.trim_end_matches('/');
        let (is_url, path) = url.split_once("://").map_or((false, url), |(_, path)| (true, path));
        let last = match path.rsplit_once('/') {
            Some((_, last)) => last,
            None if is_url => return None,
            None => path,
        };
        (!matches!(last, "" | "." | "..") && !url.ends_with(':')).then(|| format!("{url}.lakemark/store"))
    }
}
