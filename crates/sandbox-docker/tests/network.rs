//! The network of an installation, and connections from a sandbox to the service.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

use crate::support;

use std::collections::HashMap;
use std::net::SocketAddr;

use bollard::models::NetworkCreateRequest;
use bollard::query_parameters::InspectNetworkOptions;
use domain::id::SandboxId;
use domain::sandbox::{SandboxLifecycle, SandboxReader};
use futures::future::join_all;
use sandbox_docker::DockerSandboxes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use url::Url;

use support::{DockerFixture, SPEC};

async fn start(backend: &DockerSandboxes) -> SandboxId {
    start_with(backend, None).await
}

/// Starts a sandbox that reports to this URL.
async fn start_with(backend: &DockerSandboxes, webhook_url: Option<&Url>) -> SandboxId {
    let mut launch = support::launch(SPEC);
    launch.webhook_url = webhook_url.cloned().unwrap_or(launch.webhook_url);
    backend.start(&launch).await.unwrap();
    launch.id
}

/// Creates a network with this installation's label.
async fn create_network(fixture: &DockerFixture, is_isolated: bool) -> String {
    let label = (
        "agent-workspace.instance".to_owned(),
        fixture.instance.to_string(),
    );
    let closed = (
        "com.docker.network.bridge.enable_icc".to_owned(),
        "false".to_owned(),
    );
    let request = NetworkCreateRequest {
        name: network_name(fixture),
        labels: Some(HashMap::from([label])),
        options: is_isolated.then(|| HashMap::from([closed])),
        ..NetworkCreateRequest::default()
    };
    fixture.docker.create_network(request).await.unwrap().id
}

/// The name of an installation's network.
fn network_name(fixture: &DockerFixture) -> String {
    format!("agent-workspace-{}", fixture.instance)
}

#[tokio::test]
async fn concurrent_first_starts_create_one_isolated_network() {
    let fixture = DockerFixture::new().await;
    // Two services of one installation, as during a restart.
    let (first, second) = (fixture.backend(), fixture.backend());
    let starts = [&first, &second, &first, &second].map(start);
    join_all(starts).await;

    let networks = fixture.networks().await;
    assert_eq!(networks.len(), 1);
    let none = None::<InspectNetworkOptions>;
    let network = fixture.docker.inspect_network(&networks[0], none).await;
    let network = network.unwrap();
    assert_eq!(network.containers.unwrap().len(), 4);
    assert_eq!(network.name.unwrap(), network_name(&fixture));
    assert_eq!(network.enable_ipv6, Some(false));
    let options = network.options.unwrap();
    let closed = options.get("com.docker.network.bridge.enable_icc");
    assert_eq!(closed.map(String::as_str), Some("false"));
    let device = options.get("com.docker.network.bridge.name").unwrap();
    assert!(device.len() <= 15, "{device}");
}

#[tokio::test]
async fn the_oldest_isolated_network_is_kept_and_foreign_ones_are_not_touched() {
    let fixture = DockerFixture::new().await;
    let neighbour = fixture.neighbour().await;
    let theirs = create_network(&neighbour, true).await;
    let open = create_network(&fixture, false).await;
    let older = create_network(&fixture, true).await;
    let younger = create_network(&fixture, true).await;

    start(&fixture.backend()).await;

    let networks = fixture.networks().await;
    assert_eq!(networks, [older], "neither {open} nor {younger}");
    assert_eq!(neighbour.networks().await, [theirs]);
}

#[tokio::test]
async fn a_removed_network_is_recreated_for_new_and_existing_sandboxes() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend();
    let launch = support::launch(SPEC);
    backend.start(&launch).await.unwrap();
    backend.stop(&launch.id).await.unwrap();
    // The network has no running container, so the engine removes it.
    let before = fixture.networks().await;
    fixture.docker.remove_network(&before[0]).await.unwrap();

    let fresh = start(&backend).await;
    assert_eq!(fixture.status(&fresh).await, "running");
    backend.start(&launch).await.unwrap();
    assert_eq!(fixture.status(&launch.id).await, "running");

    let after = fixture.networks().await;
    assert_eq!(after.len(), 1);
    assert_ne!(after, before);
}

/// Answers HTTP requests one after the other with 404.
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
async fn a_service_on_the_gateway_is_reachable_from_a_sandbox() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend();
    let gateway = support::host_gateway_address(&fixture.docker).await;
    let listener = TcpListener::bind(SocketAddr::new(gateway, 0))
        .await
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    let id = start_with(&backend, Some(&callback(port))).await;

    let requests = async {
        // (`wget -T` of Debian's static busybox crashes.)
        let wget = "busybox timeout 10 wget -O -";
        let script = format!("{wget} http://host.docker.internal:{port}/alive");
        let answer = fixture.exec(&id, &["sh", "-c", &script]).await;
        let warnings = backend.list_warnings(&id, &callback(port)).await;
        (answer, warnings)
    };
    let ((_, answer), warnings) = tokio::select! {
        results = requests => results,
        () = serve(listener) => panic!("the service ended"),
    };

    assert!(answer.contains("404"), "{answer}");
    assert_eq!(warnings, [""; 0]);
    // A reachable URL is not checked again.
    assert_eq!(backend.list_warnings(&id, &callback(port)).await, [""; 0]);
}

#[tokio::test]
async fn an_unreachable_service_gives_a_warning_that_names_the_setting() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend();
    let gateway = support::host_gateway_address(&fixture.docker).await;
    let listener = TcpListener::bind(SocketAddr::new(gateway, 0))
        .await
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let mut url = callback(port);
    url.set_query(Some("token=canary"));
    let id = start_with(&backend, Some(&url)).await;

    let warnings = backend.list_warnings(&id, &url).await;

    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let service = format!("http://host.docker.internal:{port} (");
    assert!(warnings[0].contains(&service), "{warnings:?}");
    assert!(
        warnings[0].contains("WORKSPACE_SANDBOX__CALLBACK_URL"),
        "{warnings:?}"
    );
    assert!(!warnings[0].contains("canary"), "{warnings:?}");

    let unresolved = Url::parse("http://nowhere.invalid:3000/api/v1/webhooks").unwrap();
    let id = start_with(&backend, Some(&unresolved)).await;
    let warnings = backend.list_warnings(&id, &unresolved).await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}
