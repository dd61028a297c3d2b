//! Connections of pods to other machines through the service's forward proxy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::error::BoxError;
use domain::id::SandboxId;
use domain::sandbox::{SandboxEndpoints, SandboxLifecycle as _};
use fake_kubernetes::FakeCluster;
use sandbox_kubernetes::KubernetesSandboxes;
use sandbox_provider::{EgressGateway, EgressPolicy, EgressSlot};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::support::{launch, open, open_with};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Answers every connection with the id of the sandbox that it comes from.
#[derive(Debug)]
struct Echo;

#[async_trait]
impl EgressGateway for Echo {
    async fn serve(&self, sandbox: &SandboxId, mut stream: TcpStream) {
        // An error is one of the client, which then sees less.
        let _ = stream.write_all(sandbox.as_str().as_bytes()).await;
    }

    fn authority(&self, sandbox: &SandboxId) -> Result<Option<String>, BoxError> {
        Ok(Some(format!("authority of {sandbox}")))
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// A service with a proxy at this port.
async fn open_proxy(cluster: &FakeCluster, port: u16) -> KubernetesSandboxes {
    let gateway: Arc<dyn EgressGateway> = Arc::new(Echo);
    let slot = EgressSlot::default();
    slot.set(gateway).expect("it is new");
    let backend = open_with(cluster.url(), "host", |config| {
        config.egress = Some(slot);
        config.has_proxy = true;
        config.proxy_port = Some(port);
    })
    .await;
    backend.listen().unwrap();
    backend
}

fn address(endpoints: &SandboxEndpoints) -> IpAddr {
    endpoints.agent_url.host_str().unwrap().parse().unwrap()
}

/// What a program with this address gets from the proxy.
async fn answer(from: IpAddr, port: u16) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = socket.connect(to).await.unwrap();
    let mut text = String::new();
    // The proxy may reset a connection that it does not serve.
    let _ = stream.read_to_string(&mut text).await;
    text
}

fn variables(cluster: &FakeCluster) -> Vec<String> {
    let secrets = cluster.objects("secrets");
    secrets[0]["data"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_proxy_knows_which_pod_connects_also_after_a_restart_of_the_service() {
    for has_sandboxes in [true, false] {
        let (cluster, port) = (FakeCluster::start(has_sandboxes).await, free_port());
        let backend = open_proxy(&cluster, port).await;
        let (one, other) = (launch(), launch());
        for launch in [&one, &other] {
            let endpoints = backend.start(launch).await.unwrap();
            assert!(endpoints.has_proxy);
            assert_eq!(answer(address(&endpoints), port).await, launch.id.as_str());
        }
        let pods = format!("{:?}", cluster.objects("pods"));
        assert!(pods.contains(&format!("authority of {}", one.id)), "{pods}");
        let names = variables(&cluster);
        assert!(names.contains(&"https_proxy".to_owned()), "{names:?}");
        // This machine is no sandbox.
        assert_eq!(answer(Ipv4Addr::LOCALHOST.into(), port).await, "");

        drop(backend);
        let backend = open_proxy(&cluster, port).await;
        let endpoints = backend.start(&one).await.unwrap();
        assert!(endpoints.has_proxy);
        assert_eq!(answer(address(&endpoints), port).await, one.id.as_str());
        backend.remove(&one.id).await.unwrap();
        // The watch of the cluster tells it a moment later.
        let unknown = async {
            while !answer(address(&endpoints), port).await.is_empty() {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(TEST_TIMEOUT, unknown).await.unwrap();
    }
}

/// Each pod says whether it has a proxy, whatever the service has now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_has_the_proxy_of_its_template_and_its_service() {
    for has_sandboxes in [true, false] {
        let (cluster, port) = (FakeCluster::start(has_sandboxes).await, free_port());
        let launch = launch();
        let without = open(&cluster, "host").await;
        assert!(!without.start(&launch).await.unwrap().has_proxy);
        let with = open_proxy(&cluster, port).await;
        assert!(!with.start(&launch).await.unwrap().has_proxy);
        with.stop(&launch.id).await.unwrap();
        // A plain pod is made anew. The controller makes those of a `Sandbox` as they were at its creation.
        let endpoints = with.start(&launch).await.unwrap();
        assert_eq!(endpoints.has_proxy, !has_sandboxes);
        let names = variables(&cluster);
        assert_eq!(names.contains(&"https_proxy".to_owned()), !has_sandboxes);
        with.remove(&launch.id).await.unwrap();
        assert!(with.start(&launch).await.unwrap().has_proxy);
        with.stop(&launch.id).await.unwrap();
        assert!(with.start(&launch).await.unwrap().has_proxy);
        with.stop(&launch.id).await.unwrap();
        assert!(!without.start(&launch).await.unwrap().has_proxy);
        let names = variables(&cluster);
        assert!(!names.contains(&"https_proxy".to_owned()), "{names:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_of_another_program_is_named() {
    let cluster = FakeCluster::start(false).await;
    let other = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let port = other.local_addr().unwrap().port();
    let backend = open_with(cluster.url(), "host", |config| {
        config.egress = Some(EgressSlot::default());
        config.proxy_port = Some(port);
    })
    .await;
    let error = format!("{:#}", backend.listen().unwrap_err());
    assert!(error.contains("kubernetes.proxy_port"), "{error}");
}

/// Pods of a closed network look up no names, and know the host of their callbacks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_with_a_policy_looks_up_no_names() {
    let cluster = FakeCluster::start(false).await;
    let backend = open_with(cluster.url(), "host", |config| {
        config.policy = EgressPolicy::AllowList;
    })
    .await;
    let mut launch = self::launch();
    launch.webhook_url = "http://localhost:1/api/v1/webhooks".parse().unwrap();
    backend.start(&launch).await.unwrap();
    let pod = cluster.objects("pods").remove(0);
    let aliases = pod["spec"]["hostAliases"].as_array().unwrap();
    let own = json!({"ip": "127.0.0.1", "hostnames": ["localhost"]});
    assert!(aliases.contains(&own), "{aliases:?}");
    assert_eq!(pod["spec"]["dnsPolicy"], "None");
    let mut elsewhere = launch.clone();
    elsewhere.id = self::launch().id;
    elsewhere.webhook_url = "http://machine.invalid:1/".parse().unwrap();
    let error = backend.start(&elsewhere).await.unwrap_err().to_string();
    assert!(error.contains("sandbox.callback_url"), "{error}");
}
