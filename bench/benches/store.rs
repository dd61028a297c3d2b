//! Latency of a user's list, and throughput of event storage, on an `SQLite` file through the ports. The figures include the
//! queue, the blocking thread and decoding.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use domain::conversation::{
    Conversation, ConversationFilter, ConversationReport, ConversationRepository, ConversationView,
    ExecutionStatus, Metrics,
};
use domain::event::{Event, EventFilter, EventOrder, EventStore};
use domain::id::ConversationId;
use domain::page::{Page, PageRequest};
use port_conformance::{StorePorts, fixtures};
use serde_json::json;
use store_sql::{SqlStore, StoreConfig};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const CONVERSATIONS: u32 = 100_000;
/// Number of conversations when the benchmark only runs as a test: enough that the first user has more than two pages.
const FEW_CONVERSATIONS: u32 = 1_000;
const USERS: u32 = 4;
const SANDBOXES: u32 = 40;

struct Bench {
    runtime: Runtime,
    store: Arc<SqlStore>,
    ports: StorePorts,
    directory: TempDir,
}

/// Whether the program runs as a benchmark, and not as a test.
fn is_measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

fn bench() -> Bench {
    let runtime = Runtime::new().expect("a runtime");
    let directory = TempDir::new().expect("a directory");
    let url = format!("sqlite://{}/store.db", directory.path().display());
    let opening = SqlStore::open(StoreConfig::new(url), runtime.handle().clone());
    let store = runtime.block_on(opening).expect("open");
    Bench {
        ports: StorePorts::of(Arc::clone(&store)),
        runtime,
        store,
        directory,
    }
}

/// Stores one conversation through the port, then 100,000 copies of it, spread over users, sandboxes and time. Every fifth one of
/// the first user is a sub-conversation. Without `ANALYZE`, because the plans must be right without statistics, too.
fn fill(bench: &Bench) {
    let ports = &bench.ports;
    bench.runtime.block_on(async {
        for n in 0..SANDBOXES {
            let owner = format!("user-{}", n % USERS);
            ports.insert_sandbox(&format!("sandbox-{n}"), &owner).await;
        }
        let template = Conversation {
            title: Some("Fix the flaky test of the importer".to_owned()),
            selected_repository: Some("owner/repository".to_owned()),
            llm_model: Some("openai/gpt-5".to_owned()),
            execution_status: Some(ExecutionStatus::Finished),
            metrics: Metrics {
                accumulated_cost: 1.25,
                prompt_tokens: 123_456,
                ..Metrics::default()
            },
            tags: BTreeMap::from([("team".to_owned(), "one".to_owned())]),
            ..fixtures::conversation(0, "user-0", "sandbox-0", fixtures::at(0))
        };
        ports.insert_conversation(&template).await;
    });
    let conversations = if is_measuring() {
        CONVERSATIONS
    } else {
        FEW_CONVERSATIONS
    };
    let path = bench.directory.path().join("store.db");
    let mut raw = SqliteConnection::establish(&path.to_string_lossy()).expect("the database");
    raw.batch_execute(&format!(
        "CREATE TEMP TABLE template AS SELECT * FROM conversations;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {conversations} - 1)
         INSERT INTO conversations SELECT
             printf('%032x', i), 'user-' || (i % {USERS}),
             'sandbox-' || ((i % {USERS}) + {USERS} * ((i / {USERS}) % ({SANDBOXES} / {USERS}))),
             title || ' ' || i, title_folded || ' ' || i, auto_title, selected_repository,
             selected_branch, git_provider, started_by, pr_numbers, llm_model, agent_kind, metrics,
             CASE WHEN i > {USERS} AND i % 10 = 0 THEN printf('%032x', i - {USERS}) END,
             is_public, tags, execution_status, status_at, created_at + i * 1000, updated_at + i * 1000,
             event_count, event_bytes, shortened_events
         FROM n, template;"
    ))
    .expect("fill");
}

/// A page of the first user's list.
async fn search(
    bench: &Bench,
    filter: &ConversationFilter,
    page: &PageRequest,
) -> Page<ConversationView> {
    let user = fixtures::scope("user-0");
    let page = ConversationRepository::search(&*bench.store, &user, filter, page);
    page.await.expect("search")
}

/// A filled store, and a page in the middle of the first user's list.
fn filled() -> (Bench, PageRequest) {
    let bench = bench();
    fill(&bench);
    let all = ConversationFilter::default();
    let middle = bench.runtime.block_on(async {
        let mut page = PageRequest::default();
        let before = if is_measuring() { 100 } else { 1 };
        for _ in 0..before {
            page.after = search(&bench, &all, &page).await.next;
        }
        let second = search(&bench, &all, &page).await;
        assert_eq!(second.items.len(), 100);
        assert!(second.items.iter().all(|view| view.sandbox.is_some()));
        assert!(second.items.iter().any(|view| !view.children.is_empty()));
        page
    });
    (bench, middle)
}

fn list_100_of_100k(criterion: &mut Criterion) {
    // Created on first use, because the test runner also starts the program only to list the names.
    let store = LazyCell::new(filled);
    let measure = |filter: &ConversationFilter, page: &PageRequest| {
        let (bench, _) = &*store;
        bench.runtime.block_on(search(bench, filter, page))
    };
    let all = ConversationFilter::default();
    let first = PageRequest::default();
    let mut group = criterion.benchmark_group("list_100_of_100k");
    group.bench_function("first page", |bencher| {
        bencher.iter(|| measure(&all, &first));
    });
    group.bench_function("page 101", |bencher| {
        bencher.iter(|| measure(&all, &store.1));
    });
    let rare = ConversationFilter {
        title_contains: Some("IMPORTER 77777".to_owned()),
        ..ConversationFilter::default()
    };
    group.bench_function("title search", |bencher| {
        bencher.iter(|| measure(&rare, &first));
    });
    group.finish();
}

fn batch(first: u64) -> Vec<Event> {
    (first..first + 10)
        .map(|n| Event {
            body: json!({"id": n, "text": "x".repeat(1_000)}),
            ..fixtures::event(&n.to_string(), "ObservationEvent", fixtures::at(0))
        })
        .collect()
}

/// A store with an empty log.
fn log() -> (Bench, ConversationId) {
    let bench = bench();
    let id = bench.runtime.block_on(async {
        bench.ports.insert_sandbox("s", "alice").await;
        let conversation = fixtures::conversation(1, "alice", "s", fixtures::at(0));
        bench.ports.insert_conversation(&conversation).await
    });
    (bench, id)
}

fn append_events(criterion: &mut Criterion) {
    let store = LazyCell::new(log);
    let sandbox = fixtures::sandbox_id("s");
    let mut next = 0;
    let mut group = criterion.benchmark_group("append_events");
    group.throughput(Throughput::Elements(10));
    group.bench_function("10 of 1 kB, one commit", |bencher| {
        bencher.iter_batched(
            || {
                next += 10;
                batch(next)
            },
            |events| {
                let report = ConversationReport::default();
                let at = fixtures::at(0);
                let (bench, id) = &*store;
                let stored = bench.store.append(&sandbox, *id, &events, &report, at);
                bench.runtime.block_on(stored).expect("append")
            },
            BatchSize::SmallInput,
        );
    });
    group.throughput(Throughput::Elements(100));
    group.bench_function("newest 100 of that log", |bencher| {
        bencher.iter(|| {
            let (alice, filter) = (fixtures::scope("alice"), EventFilter::default());
            let page = PageRequest::default();
            let (bench, id) = &*store;
            bench.runtime.block_on(async {
                bench
                    .ports
                    .events
                    .search(&alice, *id, &filter, EventOrder::TimestampDesc, &page)
                    .await
                    .expect("search")
            })
        });
    });
    group.finish();
}

criterion_group!(benches, list_100_of_100k, append_events);
criterion_main!(benches);
