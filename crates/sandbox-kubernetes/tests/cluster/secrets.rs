//! Keys are in the Secret alone.

use domain::sandbox::{SandboxBackend as _, SandboxLifecycle as _};
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
