//! Keys are in the Secret alone.

use domain::sandbox::{BackendState, SandboxBackend as _, SandboxLifecycle as _};
use secrecy::ExposeSecret as _;

use crate::support::{Fresh, KINDS, assert_empty, launch};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_object_but_the_secret_contains_a_key() {
    for has_sandboxes in [true, false] {
        let fresh = Fresh::new(has_sandboxes).await;
        let launch = launch();
        fresh.start(&launch).await.unwrap();
        let recipe = fresh.recipe(&launch.spec).await.unwrap();
        let keys = [
            launch.session_key.expose_secret(),
            launch.secret_key.expose_secret(),
            "canary-7151",
        ];
        for kind in KINDS.into_iter().filter(|kind| *kind != "secrets") {
            let text = format!("{:?} {recipe}", fresh.cluster.objects(kind));
            for key in keys {
                assert!(!text.contains(key), "{kind}");
            }
        }
        let secrets = fresh.cluster.objects("secrets");
        let data = secrets[0]["data"].as_object().unwrap();
        assert!(data.contains_key("TOKEN") && data.contains_key("OH_SECRET_KEY"));
        fresh.remove(&launch.id).await.unwrap();
        assert_empty(&fresh.cluster);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cause_of_an_end_quotes_the_log_without_secret_variables() {
    let fresh = Fresh::new(true).await;
    let launch = launch();
    fresh.start(&launch).await.unwrap();
    let id = launch.id.as_str();
    fresh.cluster.write_log_line(id, "refused: canary-7151");
    fresh.cluster.end_process(id, 3);
    let state = fresh.inspect(&launch.id).await.unwrap();
    let Some(BackendState::Exited { detail }) = state else {
        panic!("{state:?}");
    };
    assert!(detail.contains("refused: ***"), "{detail}");
    fresh.remove(&launch.id).await.unwrap();
}
