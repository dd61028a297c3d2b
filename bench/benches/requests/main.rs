//! The cost of single requests and their parts: the whole surface in memory, with a store in memory, on one thread. Each has a
//! bare counterpart with only the indispensable work. For requests, it is a handler without this service, which makes the
//! same query and returns the same bytes.

mod bare;
#[path = "../../../crates/http-api/tests/routes/fixture.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "shared with the tests")]
mod fixture;
#[path = "../../../crates/http-api/tests/routes/response.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "shared with the tests")]
mod response;
#[path = "../../../crates/http-api/tests/routes/seed.rs"]
#[expect(dead_code, reason = "the route tests need more of it")]
mod seed;
mod stage;

use std::cell::LazyCell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use actix_web::App;
use actix_web::test::TestRequest;
use actix_web::web::{Bytes, Data};
use criterion::{Bencher, Criterion};
use domain::user::identity::KeyHash;
use http_api::decode::{ErrorFormat, FieldErrors};
use http_api::extract::{EventBatch, RequestInput, RequestPart};
use serde_json::Value;

use crate::fixture::{ADA, BOB};
use crate::stage::{Ask, KEY, Stage, event, whole};

const SPECS: &str = "/api/v1/sandbox-specs/search";
const SANDBOXES: &str = "/api/v1/sandboxes/search";
const CONVERSATIONS: &str = "/api/v1/app-conversations/search";
/// Requests that are built in advance, without being timed.
const AT_ONCE: u64 = 64;

type Lazy = LazyCell<Stage>;

fn main() {
    // Built on first use: the test runner runs each benchmark in its own process.
    let stage = Lazy::new(Stage::set);
    let mut criterion = Criterion::default().configure_from_args();
    keys(&mut criterion, &stage);
    bodies(&mut criterion, &stage);
    lists(&mut criterion, &stage);
    forwarded(&mut criterion, &stage);
    criterion.final_summary();
}

/// Times all of `ask`, and nothing of `make`.
fn time(stage: &Stage, bencher: &mut Bencher<'_>, ask: &Ask, make: &dyn Fn() -> TestRequest) {
    bencher.iter_custom(|times| {
        stage.system.block_on(async {
            let (mut took, mut left) = (Duration::ZERO, times);
            while left > 0 {
                let requests: Vec<_> = (0..left.min(AT_ONCE))
                    .map(|_| make().to_request())
                    .collect();
                left -= left.min(AT_ONCE);
                let began = Instant::now();
                for request in requests {
                    black_box(ask(request).await);
                }
                took += began.elapsed();
            }
            took
        })
    });
}

/// Times one future after the other.
fn repeat<F: Future>(stage: &Stage, bencher: &mut Bencher<'_>, one: impl Fn() -> F) {
    bencher.iter_custom(|times| {
        stage.system.block_on(async {
            let began = Instant::now();
            for _ in 0..times {
                black_box(one().await);
            }
            began.elapsed()
        })
    });
}

/// Identifying a cached key, compared with hashing it.
fn keys(criterion: &mut Criterion, stage: &Lazy) {
    let mut group = criterion.benchmark_group("whose a user's key is");
    group.bench_function("ours", |bencher| {
        let authenticate = &stage.world.app.authenticate;
        repeat(stage, bencher, || async {
            let found = authenticate.user(Some(black_box(ADA))).await;
            assert!(found.expect("a store in memory").is_some());
        });
    });
    group.bench_function("bare", |bencher| {
        bencher.iter(|| KeyHash::of(black_box(ADA)));
    });
    group.finish();
    let mut group = criterion.benchmark_group("where a sandbox's key leads");
    group.bench_function("ours", |bencher| {
        let (gateway, key) = (&stage.world.app.gateway, &stage.session_key);
        repeat(stage, bencher, || async {
            let way = gateway.by_key(black_box(key)).await;
            assert!(way.expect("it runs").is_some());
        });
    });
    group.bench_function("bare", |bencher| {
        let key = &stage.session_key;
        bencher.iter(|| KeyHash::of(black_box(key)));
    });
    group.finish();
}

/// Bodies of webhooks, compared with one pass of the parser.
fn bodies(criterion: &mut Criterion, stage: &Lazy) {
    for events in [1, 10, 100] {
        let body: Vec<Value> = (0..events).map(event).collect();
        let body = Bytes::from(serde_json::to_vec(&body).expect("JSON"));
        let plural = if events == 1 { "" } else { "s" };
        let name = format!("body of {events} event{plural} of 1.2 KB");
        let mut group = criterion.benchmark_group(name);
        group.bench_function("ours", |bencher| {
            let shared = Data::new(stage.state.clone());
            repeat(stage, bencher, || async {
                let request = TestRequest::post().app_data(shared.clone());
                let request = request.insert_header(("content-type", "application/json"));
                let (request, mut payload) = request.set_payload(body.clone()).to_http_parts();
                let mut input = RequestInput {
                    req: &request,
                    payload: &mut payload,
                    error_format: ErrorFormat::V1,
                    errors: FieldErrors::new(),
                };
                let batch = EventBatch::extract(&mut input);
                let mut batch = batch.await.expect("readable").expect("a list");
                assert_eq!(
                    batch.first_chunk().await.expect("readable").events.len(),
                    events
                );
            });
        });
        group.bench_function("bare", |bencher| {
            bencher.iter(|| serde_json::from_slice::<Vec<Value>>(black_box(&body)));
        });
        group.finish();
    }
}

/// Whole requests for lists.
fn lists(criterion: &mut Criterion, stage: &Lazy) {
    let fixed: [(&str, &str, &str, bare::Query); 5] = [
        ("templates", BOB, SPECS, bare::Query::Nothing),
        (
            "an empty list of sandboxes",
            BOB,
            SANDBOXES,
            bare::Query::Sandboxes,
        ),
        ("100 sandboxes", ADA, SANDBOXES, bare::Query::Sandboxes),
        (
            "100 conversations",
            ADA,
            CONVERSATIONS,
            bare::Query::Conversations,
        ),
        ("100 events of 1.2 KB", ADA, "", bare::Query::Events),
    ];
    for (name, key, path, query) in fixed {
        let path = || match query {
            bare::Query::Events => stage.events_path(),
            _ => path.to_owned(),
        };
        let make = |path: &str| TestRequest::get().uri(path).insert_header((KEY, key));
        let mut group = criterion.benchmark_group(format!("request: {name}"));
        group.bench_function("ours", |bencher| {
            let (ask, path) = (stage.ask(), path());
            time(stage, bencher, &ask, &|| make(&path));
        });
        group.bench_function("bare", |bencher| {
            let path = path();
            let answer = stage.system.block_on(stage.ask()(make(&path).to_request()));
            let handler = bare::Handler::new(stage, key, query, answer);
            let app = App::new()
                .app_data(Data::new(handler))
                .default_service(actix_web::web::to(bare::answer));
            let ask = stage.system.block_on(whole(app));
            time(stage, bencher, &ask, &|| make(&path));
        });
        group.finish();
    }
}

/// Forwarding a small request to an agent server on loopback, on another thread, compared with a direct request.
fn forwarded(criterion: &mut Criterion, stage: &Lazy) {
    let mut group = criterion.benchmark_group("request: forwarded, with the agent server's answer");
    group.bench_function("ours", |bencher| {
        let (ask, key) = (stage.ask(), stage.session_key.as_str());
        time(stage, bencher, &ask, &|| {
            TestRequest::get()
                .uri("/api/tools/")
                .insert_header((KEY, key))
        });
    });
    group.bench_function("bare", |bencher| {
        bencher.iter_custom(|times| {
            stage
                .system
                .block_on(bare::ask_directly(stage.agent, times))
        });
    });
    group.finish();
}
