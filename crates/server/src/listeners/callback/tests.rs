use std::net::Ipv4Addr;

use futures::channel::mpsc;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use super::*;
use crate::compose;
use crate::data_dir::DataDir;
use crate::disk_space::DiskSpace;

fn route(variables: &[(&str, &str)], in_containers: bool, bound: &str) -> CallbackRoute {
    let mut all = vec![("HOME".into(), "/home/someone".into())];
    all.extend(
        variables
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    let config = Config::load(None, &all).unwrap();
    CallbackRoute::new(&config, in_containers, bound.parse().unwrap())
}

#[test]
fn containers_go_by_the_gateway_where_there_is_no_better_address() {
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
            (route.base.as_str(), route.needs_listener, route.doubt),
            (base, needs_listener, None),
            "{bound}"
        );
    }
}

#[test]
fn a_configured_address_is_taken_and_a_loopback_one_doubted() {
    let with = |url: &str, in_containers| {
        let configured = [("WORKSPACE_SANDBOX__CALLBACK_URL", url)];
        route(&configured, in_containers, "127.0.0.1:3000")
    };
    let route = with("https://agents.example/base/", true);
    assert_eq!((route.needs_listener, &route.doubt), (false, &None));
    assert_eq!(
        route.webhooks().unwrap().as_str(),
        "https://agents.example/base/api/v1/webhooks"
    );
    for url in [
        "http://localhost:3000",
        "http://127.0.0.2",
        "http://[::1]:3000",
    ] {
        assert!(with(url, true).doubt.is_some(), "{url}");
        assert_eq!(with(url, false).doubt, None, "{url}");
    }
}

#[test]
fn an_engine_on_another_machine_needs_a_configured_address() {
    for (socket, is_doubted) in [
        ("tcp://10.0.0.5:2375", true),
        ("tcp://127.0.0.1:2375", false),
        ("unix:///run/user/1000/docker.sock", false),
    ] {
        let route = route(
            &[("WORKSPACE_DOCKER__SOCKET", socket)],
            true,
            "127.0.0.1:3000",
        );
        assert_eq!(route.doubt.is_some(), is_doubted, "{socket}");
        assert_eq!(route.needs_listener, !is_doubted, "{socket}");
    }
}

/// An engine whose reachability a test controls, and a listener for it.
struct CallbackFixture {
    _data: TempDir,
    listener: CallbackListener,
    gateway: Arc<Mutex<Option<IpAddr>>>,
    contact: mpsc::UnboundedSender<BackendReachability>,
    tasks: BackgroundTasks,
    port: u16,
}

impl CallbackFixture {
    async fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
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
        let config = Config::load(None, &variables).unwrap();
        let dir = DataDir::open(&config.data_dir).unwrap();
        let host = dir.host(compose::ids().as_ref()).unwrap();
        let store = compose::open_store(&config).await.unwrap();
        let keys = (&store, compose::clock());
        let vault = compose::KeyFollower::start(&config, &dir, keys, "test".to_owned()).await;
        let (vault, _) = vault.unwrap();
        let sandboxes = compose::open_sandboxes(&config, &variables, &host, None).await;
        let route = CallbackRoute::new(&config, true, config.http.bind);
        let tasks = BackgroundTasks::new(Handle::current());
        let disk = DiskSpace::new(&config);
        let place = (config.http.bind, &route, &disk);
        let sandboxes = sandboxes.unwrap();
        let service = compose::service(
            &config,
            host,
            vault,
            &store,
            &sandboxes,
            tasks.clone(),
            place,
        );
        let service = service.unwrap();
        let listener = CallbackListener {
            serving: Arc::default(),
            port: free_port(),
            http: config.http.clone(),
            state: service.http,
            app: service.app,
            tasks: tasks.clone(),
        };
        let gateway = Arc::<Mutex<Option<IpAddr>>>::default();
        let told = Arc::clone(&gateway);
        let asked: GatewayLookup = Arc::new(move || {
            let told = *told.lock().unwrap();
            Box::pin(async move { told })
        });
        let (contact, changes) = mpsc::unbounded();
        tasks.spawn(listener.clone().keep(asked, changes.boxed()));
        Self {
            _data: data,
            port: listener.port,
            listener,
            gateway,
            contact,
            tasks,
        }
    }

    fn gateway_is(&self, last: u8) {
        *self.gateway.lock().unwrap() = Some(address(last));
    }

    fn tell(&self, contact: BackendReachability) {
        self.contact.unbounded_send(contact).unwrap();
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

    async fn becomes(&self, last: u8, expected: Option<&str>) {
        let given_up = tokio::time::Instant::now() + Duration::from_secs(30);
        while self.status(last, "/alive").await.as_deref() != expected {
            assert!(
                tokio::time::Instant::now() < given_up,
                "{last}: never {expected:?}"
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
async fn it_is_there_once_the_engine_and_its_address_are_and_follows_it() {
    let world = CallbackFixture::new().await;
    world.tell(BackendReachability::Unreachable {
        detail: "down".to_owned(),
    });
    assert_eq!(world.status(1, "/alive").await, None);
    // The engine answers, and does not know its address yet.
    world.tell(BackendReachability::Reachable);
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.gateway_is(1);
    world.becomes(1, Some("200")).await;
    for path in [
        "/api/v1/sandboxes/search",
        "/api/settings",
        "/ready",
        "/docs/",
    ] {
        assert_eq!(
            world.status(1, path).await.as_deref(),
            Some("404"),
            "{path}"
        );
    }
    let hook = "/api/v1/webhooks/conversations";
    assert_eq!(world.status(1, hook).await.as_deref(), Some("405"));
    // The engine returns with another address.
    world.tell(BackendReachability::Unreachable {
        detail: "down".to_owned(),
    });
    world.gateway_is(2);
    world.tell(BackendReachability::Reachable);
    world.becomes(2, Some("200")).await;
    world.becomes(1, None).await;
    world.listener.stop(true).await;
    world.becomes(2, None).await;
    assert!(world.tasks.stop(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taken_port_is_tried_again() {
    let world = CallbackFixture::new().await;
    let other = std::net::TcpListener::bind((address(3), world.port)).unwrap();
    world.gateway_is(3);
    world.tell(BackendReachability::Reachable);
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(other);
    world.becomes(3, Some("200")).await;
    world.listener.stop(false).await;
}
