//! The life of a sandbox on a real engine.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

mod support;

use domain::sandbox::{BackendState, SandboxBackend};
use support::{Lab, SPEC, launch, name};

#[tokio::test]
async fn every_exposed_port_leads_inside() {
    let lab = Lab::new().await;
    let serve = "mkdir -p /www; echo hi > /www/index.html; \
                 for p in 8000 8001 8011 8012; do httpd -p $p -h /www; done; echo $WORKER_1 $WORKER_2; sleep 600";
    let backend = lab.backend_with(|config| config.specs = vec![support::script(SPEC, serve)]);
    let launch = launch(SPEC);
    let located = backend.start(&launch).await.unwrap();
    let ports: Vec<_> = located
        .exposed_urls
        .iter()
        .map(|it| (it.name.as_str(), it.port))
        .collect();
    assert_eq!(
        ports,
        [
            ("AGENT_SERVER", 8000),
            ("VSCODE", 8001),
            ("WORKER_1", 8011),
            ("WORKER_2", 8012)
        ]
    );
    assert_eq!(located.agent_url, located.exposed_urls[0].url);
    assert_eq!(located.workspace, "/workspace/project");
    for exposed in &located.exposed_urls {
        let port = exposed.url.port().unwrap();
        support::until("the port answers", || support::answers(port)).await;
    }
    let (_, workers) = lab
        .exec(&launch.id, &["sh", "-c", "echo $WORKER_1 $WORKER_2"])
        .await;
    assert_eq!(workers.trim(), "8011 8012");
    let listed = backend.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].state, BackendState::Running(located));
    assert_eq!(lab.containers().await, [name(&launch.id)]);
}
