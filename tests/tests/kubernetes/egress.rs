//! What pods reach through the service's forward proxy. The processes of the simulated cluster share one network, so the tests
//! send from the addresses of pods themselves.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use acceptance::Client;
use acceptance::client::Conversation;
use acceptance::processes::PLACEHOLDER_PREFIX;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use crate::World;

const SECRET: &str = "canary-secret-3f70";

/// A world whose pods have a proxy, and its port.
async fn with_proxy(has_sandboxes: bool, variables: &[(&str, &str)]) -> (World, u16) {
    let listener = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    drop(listener);
    let world = World::with(has_sandboxes, |builder| {
        let builder = builder.env("WORKSPACE_KUBERNETES__PROXY_PORT", &port.to_string());
        variables
            .iter()
            .fold(builder, |builder, (name, value)| builder.env(name, value))
    });
    (world.await, port)
}

/// The status line and the body that a program with this address gets from the proxy for a request to a URL.
async fn request(from: IpAddr, port: u16, url: &str, header: &str) -> String {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::new(from, 0)).expect("an address");
    let proxy = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = socket.connect(proxy).await.expect("the proxy listens");
    let host = url.split('/').nth(2).expect("a URL has a host");
    let head = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{header}\r\n");
    let mut answer = String::new();
    // A connection of no sandbox is closed.
    if stream.write_all(head.as_bytes()).await.is_ok() {
        let _ = stream.read_to_string(&mut answer).await;
    }
    answer
}

/// The address of the only pod.
fn pod_address(world: &World) -> IpAddr {
    let pods = world.cluster.fake.objects("pods");
    let address = pods[0]["status"]["podIP"].as_str();
    address.expect("it runs").parse().expect("an address")
}

async fn finished_conversation(world: &World) -> Conversation {
    let conversation = world.user.converse("hello").await;
    let id = &conversation.id;
    world.user.wait_for_execution_status(id, "finished").await;
    world.user.conversation(id).await
}

/// What the agent server gets for a secret.
async fn value_inside(world: &World, conversation: &Conversation) -> String {
    let key = conversation.session_api_key.as_deref();
    let inside: Client = world.user.with_key(key.expect("it runs"));
    let sandbox = &conversation.sandbox_id;
    let path = format!("/api/v1/sandboxes/{sandbox}/settings/secrets/API_TOKEN");
    inside.get(&path).await.text
}

#[tokio::test]
async fn agents_get_placeholders_also_after_a_pause_and_a_killed_service() {
    for has_sandboxes in [true, false] {
        let (mut world, port) = with_proxy(has_sandboxes, &[]).await;
        let secret = json!({"name": "API_TOKEN", "value": SECRET, "hosts": ["api.example.test"]});
        let stored = world.user.post("/api/v1/secrets", &secret).await;
        assert_eq!(stored.status, 201, "{stored:?}");
        let conversation = finished_conversation(&world).await;
        let placeholder = value_inside(&world, &conversation).await;
        assert!(placeholder.starts_with(PLACEHOLDER_PREFIX), "{placeholder}");
        let certificates = world.cluster.workspace_file("../.certificates.pem");
        let certificates = certificates.expect("the pod has written it");
        assert!(certificates.matches("BEGIN CERTIFICATE").count() > 1);

        let header = format!("X-Token: {placeholder}\r\n");
        let url = "http://api.example.test/";
        let refused = request(pod_address(&world), port, url, &header).await;
        assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
        assert!(refused.contains("https"), "{refused}");
        let own = request(Ipv4Addr::LOCALHOST.into(), port, url, &header).await;
        assert_eq!(own, "", "this machine is no sandbox");

        world.service.kill9();
        world.service.restart().await;
        let again = request(pod_address(&world), port, url, &header).await;
        assert!(again.starts_with("HTTP/1.1 403 "), "{again}");
        world.user.pause(&conversation.sandbox_id).await;
        world.user.resume(&conversation.sandbox_id).await;
        let conversation = world.user.conversation(&conversation.id).await;
        let resumed = value_inside(&world, &conversation).await;
        assert!(resumed.starts_with(PLACEHOLDER_PREFIX), "{resumed}");
        let resumed = request(pod_address(&world), port, url, "").await;
        assert!(
            resumed.starts_with("HTTP/1.1 502 "),
            "it has no address: {resumed}"
        );
        assert!(!world.service.log().contains(SECRET));
        world.assert_removed(&conversation.sandbox_id).await;
    }
}

#[tokio::test]
async fn pods_of_a_closed_network_reach_listed_and_approved_hosts() {
    let variables = [
        ("WORKSPACE_KUBERNETES__NETWORK", "closed"),
        ("WORKSPACE_EGRESS__POLICY", "allow_list"),
        ("WORKSPACE_EGRESS__ALLOW", "listed.test,one.test"),
        ("WORKSPACE_KUBERNETES__EGRESS_ALLOW", "listed.test"),
    ];
    let (world, port) = with_proxy(true, &variables).await;
    let conversation = finished_conversation(&world).await;
    let from = pod_address(&world);
    for (url, status) in [
        ("http://listed.test/", "502 "),
        ("http://one.test/", "403 "),
        ("http://127.0.0.1/", "403 "),
    ] {
        let answer = request(from, port, url, "").await;
        let answer = answer.strip_prefix("HTTP/1.1 ").unwrap_or(&answer);
        assert!(answer.starts_with(status), "{url}: {answer}");
    }
    let pending = "/api/v1/egress/requests/search?decision__eq=pending";
    let pending = world.user.get(pending).await.ok();
    let asked: Vec<&str> = pending["items"]
        .as_array()
        .expect("a page")
        .iter()
        .filter_map(|it| it["host"].as_str())
        .collect();
    assert!(asked.contains(&"one.test"), "{asked:?}");
    world.assert_removed(&conversation.sandbox_id).await;
}
