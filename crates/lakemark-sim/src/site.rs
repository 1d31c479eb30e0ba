//! One process: its handle, and what of the core it opens with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use lakemark::{
    BeginOptions, Bucket, BucketSink, Lake, ObjectCheckpointStore, OutputSink, Root, Select, SourceSettings, Wait,
};

use crate::handle::Handle;
use crate::objects::{LAKE, OUT, STORE};
use crate::scenario::SOURCE;
use crate::world::World;

/// A process of the simulation.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) actor: Arc<str>,
    /// Nothing happens to it, nor to its workers.
    pub(crate) is_calm: bool,
    handle: Handle,
}

fn root(prefix: &str) -> Root {
    Root::parse(&format!("memory://simulated/{prefix}")).expect("a plain URL")
}

impl Site {
    /// A new process in the scenario's weather.
    pub(crate) fn new(world: &World, actor: &str) -> Self {
        Self { world: world.clone(), actor: actor.into(), is_calm: false, handle: Handle::new(world, actor) }
    }

    /// A new process to which nothing happens.
    pub(crate) fn calm(world: &World, actor: &str) -> Self {
        Self { world: world.clone(), actor: actor.into(), is_calm: true, handle: Handle::calm(world, actor) }
    }

    /// A worker's process of this driver.
    pub(crate) fn worker(&self, actor: &str) -> Self {
        if self.is_calm { Self::calm(&self.world, actor) } else { Self::new(&self.world, actor) }
    }

    fn bucket(&self) -> Bucket {
        Bucket { objects: Arc::new(self.handle.clone()), uploads: Arc::new(self.handle.clone()) }
    }

    pub(crate) fn store(&self) -> ObjectCheckpointStore {
        let root = root(STORE);
        let objects = self.bucket().below(&root).expect("a plain prefix");
        ObjectCheckpointStore::on(root, objects).with_patience(self.world.scenario.patience)
    }

    pub(crate) fn lake(&self) -> Lake {
        let lake = Lake::on(root(LAKE), Select::All, self.bucket().objects);
        if self.world.scenario.parquet { lake } else { lake.with_whole_files() }
    }

    pub(crate) fn sink(&self) -> Arc<dyn OutputSink> {
        Arc::new(BucketSink::on("text", root(OUT), self.bucket()).expect("a plain prefix"))
    }

    /// What an epoch is opened with.
    pub(crate) fn options(&self, wait: Wait) -> BeginOptions {
        let format = if self.world.scenario.parquet { "parquet" } else { "text" };
        let settings = SourceSettings::files(root(LAKE), format);
        BeginOptions {
            sources: BTreeMap::from([(SOURCE.to_owned(), settings)]),
            sink: Some(self.sink().binding()),
            wait,
            lease: self.world.scenario.lease,
        }
    }
}
