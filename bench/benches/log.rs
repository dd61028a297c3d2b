//! The cost of the span and the line of a request, from the macros to the queue of the writing thread. The comparison
//! writes each line to a sink.

use std::io;

use criterion::{Criterion, criterion_group, criterion_main};
use telemetry::log_writer::LogWriter;
use tracing::Subscriber;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{registry, reload};

fn line(criterion: &mut Criterion) {
    let levels = || Targets::new().with_default(tracing::Level::INFO);
    let lines = LogWriter::start(io::sink(), |lost| format!("{lost} lost\n"))
        .expect("the thread of the log starts");
    let ours = layer()
        .with_writer(lines.escaping_controls())
        .with_ansi(false);
    let bare = layer().with_writer(io::sink).with_ansi(false);
    let mut group = criterion.benchmark_group("span and line of a request");
    let mut measure = |name, subscriber: Box<dyn Subscriber + Send + Sync>| {
        tracing::subscriber::with_default(subscriber, || {
            group.bench_function(name, |bencher| bencher.iter(log_request));
        });
    };
    let (wanted, _levels) = reload::Layer::new(levels());
    measure("ours", Box::new(registry().with(wanted).with(ours)));
    measure("bare", Box::new(registry().with(levels()).with(bare)));
    group.finish();
}

/// The span and line that `http-api` logs for each request.
fn log_request() {
    let span = tracing::info_span!(
        "http.request",
        request.id = %"4f3c2a1b-0000-4000-8000-1234567890ab",
        http.method = %"GET",
        http.path = %"/api/v1/sandbox-specs/search",
        client.address = Some(tracing::field::display("127.0.0.1")),
        http.route = tracing::field::Empty,
        http.status = tracing::field::Empty,
    );
    span.in_scope(|| tracing::info!(http.status = 200_u16, duration_ms = 0_u64, "answered"));
}

criterion_group!(benches, line);
criterion_main!(benches);
