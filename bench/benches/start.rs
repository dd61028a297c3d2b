//! The duration of a start in addition to the engine's own: `cargo bench --bench start` in `bench/`, with an engine at Docker's
//! default socket.
//!
//! Starts with the backend and bare calls alternate, so that other load of the machine affects both. The bare calls are
//! `create` and `start` with the same client and the document that the backend sends, which a proxy socket recorded. They do
//! not read the published ports. This is not a test, because figures depend on the machine.

#[path = "../../crates/sandbox-docker/tests/support/mod.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "shared with the tests")]
mod support;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bollard::models::{ContainerCreateBody, VolumeCreateRequest};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, RemoveContainerOptionsBuilder,
    RemoveVolumeOptions, StartContainerOptions,
};
use domain::sandbox::{PrepareProgress, SandboxBackend, SandboxLaunch, SandboxLifecycle};
use sandbox_docker::DockerSandboxes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use crate::support::{DockerFixture, SPEC, launch, unique_name, wait_until_connected};

const ROUNDS: usize = 60;
const ENGINE: &str = "/var/run/docker.sock";
const REQUEST_END: &[u8] = b" HTTP/1.1\r\n";

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(measure());
}

async fn measure() {
    let fixture = DockerFixture::new().await;
    let dir = tempfile::tempdir().expect("a directory");
    let wire = RawConnection::open(dir.path());
    let observed = fixture.backend_with(|config| {
        config.socket = Some(format!("unix://{}", wire.path.display()));
    });
    let (calls, body) = listen(&observed, &wire).await;
    drop(observed);

    let backend = fixture.backend();
    wait_until_connected(&backend).await;
    prepare(&backend).await;
    let (mut ours, mut bare, mut over) = (Vec::new(), Vec::new(), Vec::new());
    let mut further = Vec::new();
    for round in 0..ROUNDS {
        let first = round % 2 == 0;
        let mut pair = [Duration::ZERO; 2];
        for acquire_start_permit in [first, !first] {
            pair[usize::from(acquire_start_permit)] = if acquire_start_permit {
                start(&backend).await
            } else {
                let (took, rest) = start_bare(&fixture, &body).await;
                further.push(rest.as_secs_f64() * 1000.0);
                took
            };
        }
        let [without, with] = pair.map(|time| time.as_secs_f64() * 1000.0);
        bare.push(without);
        ours.push(with);
        over.push(with - without);
    }
    say(&format!("calls of one start:\n  {}", calls.join("\n  ")));
    say("| what | median | least | p10 | p90 |\n|---|---|---|---|---|");
    for (what, times) in [
        ("`DockerSandboxes::start`", ours),
        ("bare create and start", bare),
        ("difference, pair by pair", over),
        ("the further calls alone: volume, inspect", further),
    ] {
        say(&row(what, times));
    }
}

/// The calls of a start, and the document that creates the container.
async fn listen(
    backend: &DockerSandboxes,
    wire: &RawConnection,
) -> (Vec<String>, ContainerCreateBody) {
    wait_until_connected(backend).await;
    prepare(backend).await;
    wire.clear();
    let launch = launch(SPEC);
    backend.start(&launch).await.expect("it starts");
    let sent = wire.sent();
    backend.remove(&launch.id).await.expect("it goes");
    let is_create = |it: &&String| it.starts_with("POST ") && it.contains("/containers/create?");
    let create = sent.iter().find(is_create);
    let create = create.unwrap_or_else(|| panic!("a start makes a container: {sent:?}"));
    let (from, to) = (create.find('{'), create.rfind('}'));
    let document = &create[from.expect("a document")..=to.expect("a document")];
    let body = serde_json::from_str(document).expect("a document that the client knows");
    let lines = sent.iter().filter_map(|it| it.split("\r\n").next());
    let calls = lines.map(|line| line.split(['?', ' ']).take(2).collect::<Vec<_>>().join(" "));
    (calls.collect(), body)
}

async fn prepare(backend: &DockerSandboxes) {
    let spec = launch(SPEC).spec;
    let prepared = backend.prepare(&spec, &PrepareProgress::silent()).await;
    prepared.expect("image and network");
}

async fn start(backend: &DockerSandboxes) -> Duration {
    let launch: SandboxLaunch = launch(SPEC);
    let began = Instant::now();
    backend.start(&launch).await.expect("it starts");
    let took = began.elapsed();
    backend.remove(&launch.id).await.expect("it goes");
    took
}

/// The durations of creation and start, and of the backend's other calls: creation of the volume and inspection.
async fn start_bare(fixture: &DockerFixture, body: &ContainerCreateBody) -> (Duration, Duration) {
    let name = unique_name("bare-");
    let mut body = body.clone();
    let host = body.host_config.as_mut().expect("limits");
    let mounts = host.mounts.as_mut().expect("a workspace");
    mounts[0].source = Some(name.clone());
    if let Some(labels) = &mut body.labels {
        // The backend leaves it alone; the laboratory clears it away, also after a failure.
        labels.remove("agent-workspace.sandbox");
    }
    let labels = body.labels.clone();
    let options = CreateContainerOptionsBuilder::new().name(&name).build();
    let began = Instant::now();
    let made = fixture.docker.create_container(Some(options), body).await;
    let id = made.expect("it can be made").id;
    let started = fixture
        .docker
        .start_container(&id, None::<StartContainerOptions>);
    started.await.expect("it starts");
    let took = began.elapsed();
    let volume = VolumeCreateRequest {
        name: Some(format!("{name}-2")),
        labels,
        ..VolumeCreateRequest::default()
    };
    let began = Instant::now();
    let made = fixture.docker.create_volume(volume).await;
    let second = made.expect("it can be made").name;
    let seen = fixture
        .docker
        .inspect_container(&id, None::<InspectContainerOptions>);
    seen.await.expect("it is there");
    let further = began.elapsed();
    let options = RemoveContainerOptionsBuilder::new()
        .force(true)
        .v(true)
        .build();
    let removed = fixture.docker.remove_container(&id, Some(options)).await;
    removed.expect("it goes");
    for volume in [name, second] {
        let removed = fixture
            .docker
            .remove_volume(&volume, None::<RemoveVolumeOptions>);
        removed.await.expect("its volume goes");
    }
    (took, further)
}

fn row(what: &str, mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[times.len() * percent / 100];
    let [median, least, p10, p90] = [50, 0, 10, 90].map(at);
    format!("| {what} | {median:.1} ms | {least:.1} | {p10:.1} | {p90:.1} |")
}

fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output is open");
}

/// A proxy of the engine's socket that records requests.
struct RawConnection {
    path: PathBuf,
    handle_event: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl RawConnection {
    fn open(dir: &Path) -> Self {
        let path = dir.join("engine.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        let handle_event = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&handle_event);
        spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let engine = UnixStream::connect(ENGINE).await.expect("the engine");
                let (from_client, to_client) = client.into_split();
                let (from_engine, to_engine) = engine.into_split();
                spawn(pass_on(from_client, to_engine, Some(Arc::clone(&all))));
                spawn(pass_on(from_engine, to_client, None));
            }
        });
        Self { path, handle_event }
    }

    fn clear(&self) {
        self.handle_event
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// The recorded requests.
    fn sent(&self) -> Vec<String> {
        let handle_event = self
            .handle_event
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let chunks = handle_event
            .iter()
            .map(|chunk| String::from_utf8_lossy(chunk).into_owned());
        let mut requests: Vec<String> = Vec::new();
        for chunk in chunks {
            let first = chunk.split("\r\n").next().unwrap_or_default();
            let is_request = format!("{first}\r\n").as_bytes().ends_with(REQUEST_END);
            match requests.last_mut() {
                Some(last) if !is_request => last.push_str(&chunk),
                _ => requests.push(chunk),
            }
        }
        requests
    }
}

fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    #[expect(clippy::disallowed_methods, reason = "it ends with the program")]
    tokio::spawn(work);
}

async fn pass_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    handle_event: Option<Arc<Mutex<Vec<Vec<u8>>>>>,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let chunk = &buffer[..length];
        if let Some(handle_event) = &handle_event {
            let mut handle_event = handle_event.lock().unwrap_or_else(PoisonError::into_inner);
            handle_event.push(chunk.to_vec());
        }
        if to.write_all(chunk).await.is_err() {
            break;
        }
    }
}
