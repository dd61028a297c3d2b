//! Traces as a collector receives them: OTLP over HTTP from the real binary, decoded with OpenTelemetry's own types.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use acceptance::client::Task;
use acceptance::proxy::relay::client_builder_for;
use acceptance::wait::{wait_for, wait_until};
use acceptance::world::{RECONCILE_TIMEOUT, World};
use acceptance::{Builder, Service};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const TOKEN: &str = "canary-collector-token";
const SECRET: &str = "canary-secret-of-a-conversation";
/// The caller's trace and span; the values are the example of the specification.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// Heads and bodies of the received exports.
#[derive(Default)]
struct ReceivedExports(Mutex<Vec<(String, Vec<u8>)>>);

impl ReceivedExports {
    fn all(&self) -> Vec<(String, Vec<u8>)> {
        let exports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        exports.clone()
    }

    fn spans(&self) -> Vec<Span> {
        let read = |(_, body): (String, Vec<u8>)| {
            ExportTraceServiceRequest::decode(body.as_slice()).expect("the export is not OTLP")
        };
        let requests = self.all().into_iter().map(read);
        let resources = requests.flat_map(|it| it.resource_spans);
        let scopes = resources.flat_map(|it| it.scope_spans);
        scopes.flat_map(|it| it.spans).collect()
    }
}

/// Receives exports until it is dropped.
struct TraceCollector {
    url: String,
    exports: Arc<ReceivedExports>,
    _work: JoinSet<()>,
}

impl TraceCollector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("cannot bind a port");
        let url = format!(
            "http://{}",
            listener.local_addr().expect("the listener has no address")
        );
        let exports = Arc::new(ReceivedExports::default());
        let mut work = JoinSet::new();
        let kept = Arc::clone(&exports);
        work.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // One at a time, as the exporter sends. An aborted export is not kept.
                if let Ok(export) = receive_export(stream).await {
                    let mut exports = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
                    exports.push(export);
                }
            }
        });
        Self {
            url,
            exports,
            _work: work,
        }
    }
}

async fn receive_export(stream: TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while stream.read_line(&mut head).await? > 2 {}
    let lower = head.to_ascii_lowercase();
    let length = lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.and_then(|it| it.trim().parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    stream
        .write_all(
            // `connection: close` keeps the exporter from sending its next export over a closed connection.
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        )
        .await?;
    Ok((head, body))
}

fn string_attributes(span: &Span) -> BTreeMap<&str, &str> {
    let texts = span.attributes.iter().filter_map(|it| {
        let Some(Any::StringValue(text)) = it.value.as_ref()?.value.as_ref() else {
            return None;
        };
        Some((it.key.as_str(), text.as_str()))
    });
    texts.collect()
}

/// A client for this URL, and the URL to request through it.
fn http_client(url: &str) -> (reqwest::Client, String) {
    let (client, way) = client_builder_for(url);
    (client.build().expect("cannot build an HTTP client"), way)
}

/// Starts a conversation as part of the caller's trace.
async fn start_traced(world: &World) -> Task {
    let text = json!([{"type": "text", "text": "hello"}]);
    let request = json!({
        "initial_message": {"role": "user", "content": text, "run": true},
        "secrets": {"TOKEN": SECRET},
    });
    let url = format!("{}/api/v1/app-conversations", world.service.url());
    let (http, url) = http_client(&url);
    let sent = http
        .request(Method::POST, url)
        .header("X-Session-API-Key", world.user.key())
        .header("traceparent", format!("00-{TRACE}-{PARENT}-01"))
        .json(&request)
        .timeout(RECONCILE_TIMEOUT)
        .send()
        .await
        .expect("the start request failed");
    let task: serde_json::Value = sent.json().await.expect("the start task is not JSON");
    let id = task["id"].as_str().expect("the task has no id");
    world.user.task(id).await
}

/// The address of the metrics listener, from the log.
fn metrics_address(service: &Service) -> Option<String> {
    let log = service.log();
    let line = log
        .lines()
        .find(|line| line.contains("listening for metrics scrapes"))?;
    let (_, address) = line.split_once("address=")?;
    address.split_whitespace().next().map(str::to_owned)
}

#[tokio::test]
async fn metrics_listener_needs_no_key_and_serves_only_metrics() {
    const KEY: &str = "metrics-key";
    let own = ("WORKSPACE_METRICS__BIND", "127.0.0.1:0");
    let mut service = Service::builder().env(own.0, own.1).start().await;
    let ask = async |url: String, key: &str| {
        let (http, url) = http_client(&url);
        let request = http
            .get(url)
            .header("X-Session-API-Key", key)
            .timeout(RECONCILE_TIMEOUT);
        let answer = request.send().await.expect("the metrics request failed");
        (
            answer.status().as_u16(),
            answer.text().await.expect("cannot read the metrics"),
        )
    };
    let logged = async || metrics_address(&service);
    let metrics_address = wait_for(
        "the address of the metrics listener",
        RECONCILE_TIMEOUT,
        logged,
    )
    .await;
    let (status, page) = ask(format!("http://{metrics_address}/metrics"), "").await;
    assert_eq!(status, 200);
    assert!(
        page.contains("agent_workspace_db_connections_max"),
        "{page}"
    );
    let (status, _) = ask(
        format!("http://{metrics_address}/api/v1/settings"),
        service.admin().key(),
    )
    .await;
    assert_eq!(status, 404);
    let public_metrics = format!("{}/metrics", service.url());
    assert_eq!(
        ask(public_metrics.clone(), service.admin().key()).await.0,
        404
    );
    service.set_variable("WORKSPACE_METRICS__KEY", KEY);
    service.restart().await;
    assert_eq!(ask(public_metrics.clone(), "").await.0, 401);
    assert_eq!(ask(public_metrics, KEY).await.0, 200);
    service.stop().await;
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("cannot bind a port");
    let taken_address = other
        .local_addr()
        .expect("the listener has no address")
        .to_string();
    let data = tempfile::tempdir().expect("cannot create a temporary directory");
    let output = Service::builder()
        .env(own.0, &taken_address)
        .env("WORKSPACE_HTTP__BIND", "127.0.0.1:0")
        .start_expecting_failure(data.path())
        .await;
    assert!(output.contains("WORKSPACE_METRICS__BIND"), "{output}");
}

#[tokio::test]
async fn start_and_its_steps_join_the_trace_of_the_caller() {
    let collector = TraceCollector::start().await;
    let configure = |builder: Builder| {
        builder
            .env("WORKSPACE_TELEMETRY__OTLP_ENDPOINT", &collector.url)
            .env(
                "WORKSPACE_TELEMETRY__HEADERS",
                &format!("Authorization=Bearer {TOKEN}"),
            )
    };
    let mut world = World::configured("", configure).await;
    let task = start_traced(&world).await;
    let conversation = world.user.wait_until_ready(&task).await;
    let steps = wait_for(
        "the spans of the start's last step",
        RECONCILE_TIMEOUT,
        || async {
            let spans = collector.exports.spans();
            let is_last = |span: &&Span| span.name == "STARTING_CONVERSATION";
            let is_complete =
                spans.iter().find(is_last).is_some() && find_span(&spans, "start").is_some();
            is_complete.then_some(spans)
        },
    )
    .await;
    let is_trace = |span: &&Span| hex(&span.trace_id) == TRACE;
    let ours: Vec<&Span> = steps.iter().filter(is_trace).collect();
    let names: Vec<&str> = ours.iter().map(|span| span.name.as_str()).collect();
    let request = ours
        .iter()
        .find(|span| span.name == "POST /api/v1/app-conversations");
    let request = request.unwrap_or_else(|| panic!("the request is not in the trace: {names:?}"));
    assert_eq!(hex(&request.parent_span_id), PARENT);
    let start = find_span(&steps, "start").expect("no span of the start was exported");
    assert_eq!(
        (hex(&start.trace_id).as_str(), &start.parent_span_id),
        (TRACE, &request.span_id)
    );
    assert_eq!(string_attributes(start)["task.id"], task.id);
    for step in ["WAITING_FOR_SANDBOX", "STARTING_CONVERSATION"] {
        let step = ours.iter().find(|span| span.name == step);
        let step = step.unwrap_or_else(|| panic!("a step is missing: {names:?}"));
        assert_eq!(step.parent_span_id, start.span_id);
        assert!(step.start_time_unix_nano >= start.start_time_unix_nano);
    }
    assert!(names.contains(&"agent.start"), "{names:?}");
    // Spans that are open when the service is asked to stop are exported.
    let before = collector.exports.all().len();
    assert!(
        world
            .user
            .find_conversation(&conversation.id)
            .await
            .is_some()
    );
    world.service.stop().await;
    assert!(
        collector.exports.all().len() > before,
        "the service exported nothing at its stop"
    );
    assert_no_secret(&collector, &world);
}

#[tokio::test]
async fn start_resumed_after_a_crash_keeps_its_trace() {
    let collector = TraceCollector::start().await;
    let configure =
        |builder: Builder| builder.env("WORKSPACE_TELEMETRY__OTLP_ENDPOINT", &collector.url);
    let mut world = World::configured("create-hang", configure).await;
    let task = start_traced(&world).await;
    wait_for("the last step", RECONCILE_TIMEOUT, || async {
        let task = world.user.task(&task.id).await;
        (task.status == "STARTING_CONVERSATION").then_some(())
    })
    .await;
    world.service.kill9();
    world.stub.set_faults("");
    world.service.restart().await;
    world.user.wait_until_ready(&task).await;
    // The killed process never ended its span, so this is the span of the second process.
    let spans = wait_for("the span of the start", RECONCILE_TIMEOUT, || async {
        let spans = collector.exports.spans();
        find_span(&spans, "start").is_some().then_some(spans)
    })
    .await;
    let start = find_span(&spans, "start").expect("no span of the start was exported");
    assert_eq!(hex(&start.trace_id), TRACE);
    assert_eq!(
        start.parent_span_id.len(),
        8,
        "the start must be a child of the request"
    );
    assert_eq!(string_attributes(start)["task.id"], task.id);
}

fn find_span<'a>(spans: &'a [Span], name: &str) -> Option<&'a Span> {
    spans.iter().find(|span| span.name == name)
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

fn assert_no_secret(collector: &TraceCollector, world: &World) {
    for (head, body) in collector.exports.all() {
        let body = String::from_utf8_lossy(&body);
        for secret in [TOKEN, SECRET, "sk-stub", world.user.key()] {
            assert!(!body.contains(secret), "an exported span contains a secret");
        }
        assert!(
            head.contains(TOKEN),
            "the collector's header is missing: {head}"
        );
    }
    assert!(
        !world.service.log().contains(TOKEN),
        "the log contains the collector's token"
    );
}

#[tokio::test]
async fn silent_collector_costs_one_log_line_a_minute_and_nothing_else() {
    // The collector accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("cannot bind a port");
    let url = format!(
        "http://{}",
        silent.local_addr().expect("the listener has no address")
    );
    let began = Instant::now();
    let configure = |builder: Builder| {
        builder
            .env("WORKSPACE_TELEMETRY__OTLP_ENDPOINT", &url)
            .env("WORKSPACE_HTTP__REQUESTS_PER_SECOND", "0")
    };
    let mut world = World::configured("", configure).await;
    world.user.converse("hello").await;
    // More spans than the queue holds.
    for _ in 0..2500 {
        assert_eq!(world.user.get("/api/v1/users/me").await.status, 200);
    }
    let lines = || {
        let log = world.service.log();
        log.matches("traces could not be exported").count()
    };
    wait_until("a log line about the collector", RECONCILE_TIMEOUT, || {
        lines() > 0
    })
    .await;
    let elapsed_minutes =
        usize::try_from(began.elapsed().as_secs() / 60).expect("the test has run for too long");
    assert!(lines() <= 1 + elapsed_minutes, "{}", world.service.log());
    // Fails if the service does not stop in time.
    world.service.stop().await;
}
