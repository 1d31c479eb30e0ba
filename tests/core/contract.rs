//! Every implementation of the lifecycle keeps the one contract.

use std::sync::Arc;

use lakemark::MemoryCheckpointStore;
use lakemark::store::contract::check;
use object_store::memory::InMemory;

use crate::harness::{Site, faulty, store_on, takeover};
use lakemark::faults::{Act, Failure, Op, When};

#[tokio::test]
async fn the_memory_store_keeps_the_contract() {
    check(&MemoryCheckpointStore::default()).await;
}

#[tokio::test]
async fn a_run_on_a_disk_keeps_the_contract() {
    let site = Site::new();
    let run = site.store().begin(takeover()).await.unwrap();
    check(&run).await;
    run.close().await.unwrap();
}

#[tokio::test]
async fn a_run_on_an_object_store_keeps_the_contract() {
    let run = store_on(Arc::new(InMemory::new())).begin(takeover()).await.unwrap();
    check(&run).await;
    run.close().await.unwrap();
}

#[tokio::test]
async fn a_run_on_a_store_that_fails_now_and_then_keeps_the_contract() {
    let (faults, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let _put = faults.plant(Op::Put, |_| true, When::Every(3), Act::Fail(Failure::Unanswered));
    let _echo = faults.plant(Op::Put, |_| true, When::Every(4), Act::DoneThenFail(Failure::Unanswered));
    let _get = faults.plant(Op::Get, |_| true, When::Every(3), Act::Cut(5));
    let _torn = faults.plant(Op::Get, |_| true, When::Every(4), Act::Torn(5));
    let _list = faults.plant(Op::List, |_| true, When::Every(7), Act::Cut(1));
    check(&run).await;
    run.close().await.unwrap();
}
