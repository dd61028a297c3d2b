use std::net::Ipv4Addr;

use futures::channel::mpsc;
use sandbox_provider::Installation;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::*;
use crate::compose;
use crate::data_dir::DataDir;
use crate::disk_space::DiskSpace;

/// Time for the listener to react, with a wide margin.
const WAIT_TIMEOUT: Duration = Duration::from_secs(180);

fn network(config: &Config, in_containers: bool) -> SandboxNetworking {
    let name = if in_containers { "docker" } else { "process" };
    config.backend(name).unwrap().features().network
}

fn route(variables: &[(&str, &str)], in_containers: bool, bound: &str) -> CallbackRoute {
    let mut all = vec![
        ("HOME".into(), "/home/someone".into()),
        // Only processes without isolation share the network of the machine.
        ("WORKSPACE_PROCESS__ISOLATION".into(), "none".into()),
    ];
    all.extend(
        variables
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    let config = Config::load(compose::BACKENDS, None, &all).unwrap();
    let network = network(&config, in_containers);
    CallbackRoute::new(&config, network, bound.parse().unwrap())
}

#[test]
fn containers_use_the_gateway_when_the_service_has_no_address_for_them() {
    for (in_containers, bound, base, needs_listener) in [
        (false, "127.0.0.1:3000", "http://127.0.0.1:3000/", false),
        (false, "0.0.0.0:3000", "http://127.0.0.1:3000/", false),
        (
            true,
            "127.0.0.1:3000",
            "http://host.docker.internal:3000/",
            true,
        ),
        (
            true,
            "[::1]:3000",
            "http://host.docker.internal:3000/",
            true,
        ),
        (
            true,
            "0.0.0.0:3000",
            "http://host.docker.internal:3000/",
            false,
        ),
        (
            true,
            "[::]:3000",
            "http://host.docker.internal:3000/",
            false,
        ),
        (true, "192.168.1.2:3000", "http://192.168.1.2:3000/", false),
    ] {
        let route = route(&[], in_containers, bound);
        assert_eq!(
            (route.base.as_str(), route.needs_listener, route.warning),
            (base, needs_listener, None),
            "{bound}"
        );
    }
}

#[test]
fn a_configured_url_is_used_and_a_loopback_one_gives_a_warning() {
    let with = |url: &str, in_containers| {
        let configured = [("WORKSPACE_SANDBOX__CALLBACK_URL", url)];
        route(&configured, in_containers, "127.0.0.1:3000")
    };
    let route = with("https://agents.example/base/", true);
    assert_eq!((route.needs_listener, &route.warning), (false, &None));
    assert_eq!(
        route.webhooks().unwrap().as_str(),
        "https://agents.example/base/api/v1/webhooks"
    );
    for url in [
        "http://localhost:3000",
        "http://127.0.0.2",
        "http://[::1]:3000",
    ] {
        assert!(with(url, true).warning.is_some(), "{url}");
        assert_eq!(with(url, false).warning, None, "{url}");
    }
}

#[test]
fn an_engine_on_another_machine_needs_a_configured_address() {
    for (socket, has_warning) in [
        ("tcp://10.0.0.5:2375", true),
        ("tcp://127.0.0.1:2375", false),
        ("unix:///run/user/1000/docker.sock", false),
    ] {
        let route = route(
            &[("WORKSPACE_DOCKER__SOCKET", socket)],
            true,
            "127.0.0.1:3000",
        );
        assert_eq!(route.warning.is_some(), has_warning, "{socket}");
        assert_eq!(route.needs_listener, !has_warning, "{socket}");
    }
}

/// An engine whose reachability a test controls, and a listener for it.
struct CallbackFixture {
    _data: TempDir,
    listener: CallbackListener,
    gateway: Arc<Mutex<Option<IpAddr>>>,
    lookup_count: watch::Receiver<usize>,
    reachability: mpsc::UnboundedSender<BackendReachability>,
    tasks: BackgroundTasks,
    port: u16,
}

impl CallbackFixture {
    async fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let tasks = BackgroundTasks::new(Handle::current());
        let (state, app, http) = Self::service(&data, &tasks).await;
        let listener = CallbackListener {
            serving: Arc::default(),
            port: free_port(),
            http,
            state,
            app,
            tasks: tasks.clone(),
        };
        let gateway = Arc::<Mutex<Option<IpAddr>>>::default();
        let (lookups, lookup_count) = watch::channel(0);
        let current = Arc::clone(&gateway);
        let lookup: GatewayLookup = Arc::new(move || {
            let current = *current.lock().unwrap();
            lookups.send_modify(|count| *count += 1);
            Box::pin(async move { current })
        });
        let (reachability, changes) = mpsc::unbounded();
        tasks.spawn(listener.clone().follow_gateway(lookup, changes.boxed()));
        Self {
            _data: data,
            port: listener.port,
            listener,
            gateway,
            lookup_count,
            reachability,
            tasks,
        }
    }

    async fn service(data: &TempDir, tasks: &BackgroundTasks) -> (HttpState, App, HttpSettings) {
        let set = |name: &str, value: &std::ffi::OsStr| (name.into(), value.to_owned());
        let variables = [
            set("WORKSPACE_DATA_DIR", data.path().as_os_str()),
            set("WORKSPACE_SANDBOX__BACKEND", "process".as_ref()),
            set(
                "WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND",
                "/bin/true".as_ref(),
            ),
            // In open mode a user needs no key, so users' routes must not be served here.
            set("WORKSPACE_AUTH__MODE", "open".as_ref()),
        ];
        let config = Config::load(compose::BACKENDS, None, &variables).unwrap();
        let dir = DataDir::open(&config.data_dir).unwrap();
        let host = dir.host(compose::ids().as_ref()).unwrap();
        let store = compose::open_store(&config).await.unwrap();
        let keys = (&store, compose::clock());
        let vault = compose::KeyFollower::start(&config, &dir, keys, "test".to_owned()).await;
        let (vault, _) = vault.unwrap();
        let installation = Installation {
            host: &host,
            data_dir: &config.data_dir,
            variables: &variables,
        };
        let sandboxes = compose::open_backend(&config, &installation, None).await;
        let route = CallbackRoute::new(&config, network(&config, true), config.http.bind);
        let disk = DiskSpace::new(&config);
        let parts = (config.http.bind, &route, &disk, None);
        let sandboxes = sandboxes.unwrap();
        let service = compose::service(
            &config,
            host,
            vault,
            &store,
            &sandboxes,
            tasks.clone(),
            parts,
        );
        let service = service.unwrap();
        (service.http, service.app, config.http)
    }

    /// Waits until the listener has asked that often for the gateway.
    async fn wait_for_lookups(&self, expected: usize) {
        let mut count = self.lookup_count.clone();
        let reached = count.wait_for(|count| *count >= expected);
        let reached = tokio::time::timeout(WAIT_TIMEOUT, reached).await;
        assert!(
            reached.is_ok(),
            "fewer than {expected} look-ups of the gateway"
        );
    }

    fn set_gateway(&self, last: u8) {
        *self.gateway.lock().unwrap() = Some(address(last));
    }

    fn send(&self, change: BackendReachability) {
        self.reachability.unbounded_send(change).unwrap();
    }

    /// The status of a response; `None` without a listener.
    async fn status(&self, last: u8, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect((address(last), self.port)).await.ok()?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: x.localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        answer.split(' ').nth(1).map(str::to_owned)
    }

    async fn wait_for_status(&self, last: u8, expected: Option<&str>) {
        let deadline = tokio::time::Instant::now() + WAIT_TIMEOUT;
        while self.status(last, "/alive").await.as_deref() != expected {
            assert!(
                tokio::time::Instant::now() < deadline,
                "{last}: the status never became {expected:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// One of this machine's many loopback addresses.
fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 71, last).into()
}

fn free_port() -> u16 {
    let taken = std::net::TcpListener::bind((address(1), 0)).unwrap();
    taken.local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listener_follows_the_address_of_the_gateway() {
    let fixture = CallbackFixture::new().await;
    fixture.send(BackendReachability::Unreachable {
        detail: "down".to_owned(),
    });
    assert_eq!(fixture.status(1, "/alive").await, None);
    // The engine answers, and does not report its gateway yet.
    fixture.send(BackendReachability::Reachable);
    fixture.wait_for_lookups(1).await;
    fixture.set_gateway(1);
    fixture.wait_for_status(1, Some("200")).await;
    for path in [
        "/api/v1/sandboxes/search",
        "/api/settings",
        "/ready",
        "/docs/",
    ] {
        assert_eq!(
            fixture.status(1, path).await.as_deref(),
            Some("404"),
            "{path}"
        );
    }
    let hook = "/api/v1/webhooks/conversations";
    assert_eq!(fixture.status(1, hook).await.as_deref(), Some("405"));
    // The engine returns with another address.
    fixture.send(BackendReachability::Unreachable {
        detail: "down".to_owned(),
    });
    fixture.set_gateway(2);
    fixture.send(BackendReachability::Reachable);
    fixture.wait_for_status(2, Some("200")).await;
    fixture.wait_for_status(1, None).await;
    fixture.listener.stop(true).await;
    fixture.wait_for_status(2, None).await;
    assert!(fixture.tasks.stop(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listening_is_retried_while_the_port_is_taken() {
    let fixture = CallbackFixture::new().await;
    let other = std::net::TcpListener::bind((address(3), fixture.port)).unwrap();
    fixture.set_gateway(3);
    fixture.send(BackendReachability::Reachable);
    // The second look-up follows the failed attempt to listen.
    fixture.wait_for_lookups(2).await;
    drop(other);
    fixture.wait_for_status(3, Some("200")).await;
    fixture.listener.stop(false).await;
}
