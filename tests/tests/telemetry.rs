//! Traces as a collector gets them: OTLP over HTTP from the real binary, read with OpenTelemetry's own types.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use acceptance::client::Task;
use acceptance::proxy::relay::way_to;
use acceptance::wait::wait_for;
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
/// What the caller is doing; the values are the example of the specification.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// What came: the heads, and the bodies.
#[derive(Default)]
struct MailServer(Mutex<Vec<(String, Vec<u8>)>>);

impl MailServer {
    fn all(&self) -> Vec<(String, Vec<u8>)> {
        let mail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mail.clone()
    }

    fn spans(&self) -> Vec<Span> {
        let read = |(_, body): (String, Vec<u8>)| {
            ExportTraceServiceRequest::decode(body.as_slice()).expect("it is OTLP")
        };
        let requests = self.all().into_iter().map(read);
        let resources = requests.flat_map(|it| it.resource_spans);
        let scopes = resources.flat_map(|it| it.scope_spans);
        scopes.flat_map(|it| it.spans).collect()
    }
}

/// Takes what it is sent, until it is dropped.
struct TraceCollector {
    url: String,
    mail: Arc<MailServer>,
    _work: JoinSet<()>,
}

impl TraceCollector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("it listens"));
        let mail = Arc::new(MailServer::default());
        let mut work = JoinSet::new();
        let kept = Arc::clone(&mail);
        work.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // One after the other, as the exporter sends. Whoever breaks off is not counted.
                if let Ok(letter) = take(stream).await {
                    let mut mail = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
                    mail.push(letter);
                }
            }
        });
        Self {
            url,
            mail,
            _work: work,
        }
    }
}

async fn take(stream: TcpStream) -> std::io::Result<(String, Vec<u8>)> {
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
            // Said, so that the exporter does not send its next letter over a connection that is closed.
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        )
        .await?;
    Ok((head, body))
}

fn texts(span: &Span) -> BTreeMap<&str, &str> {
    let texts = span.attributes.iter().filter_map(|it| {
        let Some(Any::StringValue(text)) = it.value.as_ref()?.value.as_ref() else {
            return None;
        };
        Some((it.key.as_str(), text.as_str()))
    });
    texts.collect()
}

/// A client for this URL, and what it asks for in its place.
fn client(url: &str) -> (reqwest::Client, String) {
    let (client, way) = way_to(url);
    (client.build().expect("a client"), way)
}

/// Asks for a conversation as part of a trace.
async fn start_traced(world: &World) -> Task {
    let text = json!([{"type": "text", "text": "hello"}]);
    let request = json!({
        "initial_message": {"role": "user", "content": text, "run": true},
        "secrets": {"TOKEN": SECRET},
    });
    let url = format!("{}/api/v1/app-conversations", world.service.url());
    let (http, url) = client(&url);
    let sent = http
        .request(Method::POST, url)
        .header("X-Session-API-Key", world.user.key())
        .header("traceparent", format!("00-{TRACE}-{PARENT}-01"))
        .json(&request)
        .timeout(RECONCILE_TIMEOUT)
        .send()
        .await
        .expect("it answers");
    let task: serde_json::Value = sent.json().await.expect("a task");
    let id = task["id"].as_str().expect("a task has an id");
    world.user.task(id).await
}

/// Where the service says that metrics are read.
fn metrics_at(service: &Service) -> Option<String> {
    let log = service.log();
    let line = log
        .lines()
        .find(|line| line.contains("listening for metrics scrapes"))?;
    let (_, address) = line.split_once("address=")?;
    address.split_whitespace().next().map(str::to_owned)
}

#[tokio::test]
async fn metrics_on_an_address_of_their_own_need_no_key_and_are_nowhere_else() {
    const KEY: &str = "metrics-key";
    let own = ("WORKSPACE_METRICS__BIND", "127.0.0.1:0");
    let mut service = Service::builder().env(own.0, own.1).start().await;
    let ask = async |url: String, key: &str| {
        let (http, url) = client(&url);
        let asked = http
            .get(url)
            .header("X-Session-API-Key", key)
            .timeout(RECONCILE_TIMEOUT);
        let answer = asked.send().await.expect("it answers");
        (answer.status().as_u16(), answer.text().await.expect("text"))
    };
    let said = async || metrics_at(&service);
    let there = wait_for("where metrics are", RECONCILE_TIMEOUT, said).await;
    let (status, page) = ask(format!("http://{there}/metrics"), "").await;
    assert_eq!(status, 200);
    assert!(
        page.contains("agent_workspace_db_connections_max"),
        "{page}"
    );
    let (status, _) = ask(
        format!("http://{there}/api/v1/settings"),
        service.admin().key(),
    )
    .await;
    assert_eq!(status, 404);
    let here = format!("{}/metrics", service.url());
    assert_eq!(ask(here.clone(), service.admin().key()).await.0, 404);
    service.set("WORKSPACE_METRICS__KEY", KEY);
    service.restart().await;
    assert_eq!(ask(here.clone(), "").await.0, 401);
    assert_eq!(ask(here, KEY).await.0, 200);
    service.stop().await;
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = other.local_addr().expect("it listens").to_string();
    let data = tempfile::tempdir().expect("a directory");
    let said = Service::builder()
        .env(own.0, &taken)
        .env("WORKSPACE_HTTP__BIND", "127.0.0.1:0")
        .fails_to_start(data.path())
        .await;
    assert!(said.contains("WORKSPACE_METRICS__BIND"), "{said}");
}

#[tokio::test]
async fn a_start_and_its_steps_are_a_trace_of_the_caller() {
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
    let conversation = world.user.ready(&task).await;
    let steps = wait_for(
        "the spans of the start's last step",
        RECONCILE_TIMEOUT,
        || async {
            let spans = collector.mail.spans();
            let is_last = |span: &&Span| span.name == "STARTING_CONVERSATION";
            let is_there = spans.iter().find(is_last).is_some() && named(&spans, "start").is_some();
            is_there.then_some(spans)
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
    let start = named(&steps, "start").expect("it is there");
    assert_eq!(
        (hex(&start.trace_id).as_str(), &start.parent_span_id),
        (TRACE, &request.span_id)
    );
    assert_eq!(texts(start)["task.id"], task.id);
    for step in ["WAITING_FOR_SANDBOX", "STARTING_CONVERSATION"] {
        let step = ours.iter().find(|span| span.name == step);
        let step = step.unwrap_or_else(|| panic!("a step is missing: {names:?}"));
        assert_eq!(step.parent_span_id, start.span_id);
        assert!(step.start_time_unix_nano >= start.start_time_unix_nano);
    }
    assert!(names.contains(&"agent.start"), "{names:?}");
    // What was open when the service was asked to stop is not lost.
    let before = collector.mail.all().len();
    assert!(
        world
            .user
            .find_conversation(&conversation.id)
            .await
            .is_some()
    );
    world.service.stop().await;
    assert!(
        collector.mail.all().len() > before,
        "nothing came at the end"
    );
    nothing_leaks(&collector, &world);
}

#[tokio::test]
async fn a_start_that_another_process_takes_up_stays_in_its_trace() {
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
    world.stub.set("");
    world.service.restart().await;
    world.user.ready(&task).await;
    // The first one was never ended, so this is the second.
    let spans = wait_for("the span of the start", RECONCILE_TIMEOUT, || async {
        let spans = collector.mail.spans();
        named(&spans, "start").is_some().then_some(spans)
    })
    .await;
    let start = named(&spans, "start").expect("it is there");
    assert_eq!(hex(&start.trace_id), TRACE);
    assert_eq!(start.parent_span_id.len(), 8, "it is below the request");
    assert_eq!(texts(start)["task.id"], task.id);
}

fn named<'a>(spans: &'a [Span], name: &str) -> Option<&'a Span> {
    spans.iter().find(|span| span.name == name)
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

fn nothing_leaks(collector: &TraceCollector, world: &World) {
    for (head, body) in collector.mail.all() {
        let body = String::from_utf8_lossy(&body);
        for secret in [TOKEN, SECRET, "sk-stub", world.user.key()] {
            assert!(!body.contains(secret), "a secret is in a trace");
        }
        assert!(
            head.contains(TOKEN),
            "the collector's header is missing: {head}"
        );
    }
    assert!(
        !world.service.log().contains(TOKEN),
        "a secret is in the log"
    );
}

#[tokio::test]
async fn a_dead_collector_is_a_line_in_the_log_and_nothing_else() {
    // It takes connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("it listens"));
    let began = Instant::now();
    let configure = |builder: Builder| {
        builder
            .env("WORKSPACE_TELEMETRY__OTLP_ENDPOINT", &url)
            .env("WORKSPACE_HTTP__REQUESTS_PER_SECOND", "0")
    };
    let mut world = World::configured("", configure).await;
    world.user.converse("hello").await;
    // More than the queue holds.
    for _ in 0..2500 {
        assert_eq!(world.user.get("/api/v1/users/me").await.status, 200);
    }
    let lines = || {
        let log = world.service.log();
        log.matches("traces could not be exported").count()
    };
    wait_for("a line about it", RECONCILE_TIMEOUT, || async {
        (lines() > 0).then_some(())
    })
    .await;
    let minutes = usize::try_from(began.elapsed().as_secs() / 60).expect("a few");
    assert!(lines() <= 1 + minutes, "{}", world.service.log());
    let asked = Instant::now();
    world.service.stop().await;
    assert!(
        asked.elapsed() < Duration::from_secs(30),
        "it did not stop in time"
    );
}
