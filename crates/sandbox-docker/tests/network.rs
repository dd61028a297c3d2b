//! The network of an installation: one, its own, and the way from a sandbox back to the service.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use crate::support;

use std::collections::HashMap;
use std::net::SocketAddr;

use bollard::models::NetworkCreateRequest;
use bollard::query_parameters::InspectNetworkOptions;
use domain::id::SandboxId;
use domain::sandbox::SandboxBackend;
use futures::future::join_all;
use sandbox_docker::DockerSandboxes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use url::Url;

use support::{DockerFixture, SPEC};

async fn start(backend: &DockerSandboxes) -> SandboxId {
    start_with(backend, None).await
}

/// A sandbox that is told to report there.
async fn start_with(backend: &DockerSandboxes, webhook_url: Option<&Url>) -> SandboxId {
    let mut launch = support::launch(SPEC);
    launch.webhook_url = webhook_url.cloned().unwrap_or(launch.webhook_url);
    backend.start(&launch).await.unwrap();
    launch.id
}

/// Makes a network by hand, with this installation's label.
async fn make_network(lab: &DockerFixture, is_closed: bool) -> String {
    let label = (
        "agent-workspace.instance".to_owned(),
        lab.instance.to_string(),
    );
    let closed = (
        "com.docker.network.bridge.enable_icc".to_owned(),
        "false".to_owned(),
    );
    let request = NetworkCreateRequest {
        name: usual_name(lab),
        labels: Some(HashMap::from([label])),
        options: is_closed.then(|| HashMap::from([closed])),
        ..NetworkCreateRequest::default()
    };
    lab.docker.create_network(request).await.unwrap().id
}

/// How an installation calls its network.
fn usual_name(lab: &DockerFixture) -> String {
    format!("agent-workspace-{}", lab.instance)
}

#[tokio::test]
async fn a_race_of_first_starts_makes_one_closed_network() {
    let lab = DockerFixture::new().await;
    // Two services of one installation for a moment, as in a restart.
    let (first, second) = (lab.backend(), lab.backend());
    let starts = [&first, &second, &first, &second].map(start);
    join_all(starts).await;

    let networks = lab.networks().await;
    assert_eq!(networks.len(), 1);
    let none = None::<InspectNetworkOptions>;
    let network = lab.docker.inspect_network(&networks[0], none).await;
    let network = network.unwrap();
    assert_eq!(network.containers.unwrap().len(), 4);
    assert_eq!(network.name.unwrap(), usual_name(&lab));
    assert_eq!(network.enable_ipv6, Some(false));
    let options = network.options.unwrap();
    let closed = options.get("com.docker.network.bridge.enable_icc");
    assert_eq!(closed.map(String::as_str), Some("false"));
    let device = options.get("com.docker.network.bridge.name").unwrap();
    assert!(device.len() <= 15, "{device}");
}

#[tokio::test]
async fn the_oldest_closed_one_stays_and_networks_of_others_are_left_alone() {
    let lab = DockerFixture::new().await;
    let neighbour = lab.neighbour().await;
    let theirs = make_network(&neighbour, true).await;
    let open = make_network(&lab, false).await;
    let older = make_network(&lab, true).await;
    let younger = make_network(&lab, true).await;

    start(&lab.backend()).await;

    let networks = lab.networks().await;
    assert_eq!(networks, [older], "neither {open} nor {younger}");
    assert_eq!(neighbour.networks().await, [theirs]);
}

#[tokio::test]
async fn a_network_that_was_removed_by_hand_is_made_again() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend();
    let launch = support::launch(SPEC);
    backend.start(&launch).await.unwrap();
    backend.stop(&launch.id).await.unwrap();
    // Possible because no running container is in it.
    let before = lab.networks().await;
    lab.docker.remove_network(&before[0]).await.unwrap();

    let fresh = start(&backend).await;
    assert_eq!(lab.status(&fresh).await, "running");
    backend.start(&launch).await.unwrap();
    assert_eq!(lab.status(&launch.id).await, "running");

    let after = lab.networks().await;
    assert_eq!(after.len(), 1);
    assert_ne!(after, before);
}

/// Answers one HTTP request after the other, with nothing much.
async fn serve(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = [0; 1024];
        let _ = stream.read(&mut request).await;
        let answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let _ = stream.write_all(answer).await;
    }
}

fn callback(port: u16) -> Url {
    let url = format!("http://host.docker.internal:{port}/api/v1/webhooks");
    Url::parse(&url).unwrap()
}

#[tokio::test]
async fn a_service_on_the_gateway_is_reached_from_inside() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend();
    let gateway = support::gateway(&lab.docker).await;
    let listener = TcpListener::bind(SocketAddr::new(gateway, 0))
        .await
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    let id = start_with(&backend, Some(&callback(port))).await;

    let asked = async {
        // (`wget -T` of Debian's static busybox crashes.)
        let wget = "busybox timeout 10 wget -O -";
        let script = format!("{wget} http://host.docker.internal:{port}/alive");
        let answer = lab.exec(&id, &["sh", "-c", &script]).await;
        let advice = backend.list_warnings(&id, &callback(port)).await;
        (answer, advice)
    };
    let ((_, answer), advice) = tokio::select! {
        asked = asked => asked,
        () = serve(listener) => panic!("the service ended"),
    };

    assert!(answer.contains("404"), "{answer}");
    assert_eq!(advice, [""; 0]);
    // It was reached once, so it is not checked again.
    assert_eq!(backend.list_warnings(&id, &callback(port)).await, [""; 0]);
}

#[tokio::test]
async fn a_service_that_cannot_be_reached_from_inside_is_told_with_what_to_do() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend();
    let gateway = support::gateway(&lab.docker).await;
    let listener = TcpListener::bind(SocketAddr::new(gateway, 0))
        .await
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let mut url = callback(port);
    url.set_query(Some("token=canary"));
    let id = start_with(&backend, Some(&url)).await;

    let advice = backend.list_warnings(&id, &url).await;

    assert_eq!(advice.len(), 1, "{advice:?}");
    let service = format!("http://host.docker.internal:{port} (");
    assert!(advice[0].contains(&service), "{advice:?}");
    assert!(
        advice[0].contains("WORKSPACE_SANDBOX__CALLBACK_URL"),
        "{advice:?}"
    );
    assert!(!advice[0].contains("canary"), "{advice:?}");

    let unresolved = Url::parse("http://nowhere.invalid:3000/api/v1/webhooks").unwrap();
    let id = start_with(&backend, Some(&unresolved)).await;
    let advice = backend.list_warnings(&id, &unresolved).await;
    assert_eq!(advice.len(), 1, "{advice:?}");
}
