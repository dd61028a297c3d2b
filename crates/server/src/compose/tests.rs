//! A backend needs its crate and a line in `BACKENDS`: the backend of the tutorial has nothing else.

use std::time::Duration;

use application::background;
use domain::sandbox::BackendState;
use sandbox_provider::Installation;
use tempfile::TempDir;

use super::*;
use crate::commands::doctor;
use crate::config::first_user;
use crate::data_dir::DataDir;

/// Time for a sandbox to start, with a wide margin.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

fn variables(data: &TempDir) -> Vec<(OsString, OsString)> {
    let set = |name: &str, value: &str| (name.into(), value.into());
    vec![
        set("WORKSPACE_DATA_DIR", data.path().to_str().unwrap()),
        set("WORKSPACE_HTTP__BIND", "127.0.0.1:0"),
        set("WORKSPACE_SANDBOX__BACKEND", "example"),
        // The words after `--` are the arguments that the backend adds.
        set("WORKSPACE_EXAMPLE__COMMAND", "sh -c 'exec sleep 1000' --"),
        set("WORKSPACE_AUTH__MODE", "open"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_is_a_crate_and_a_line() {
    let data = TempDir::new().unwrap();
    let variables = variables(&data);
    let config = Config::load(BACKENDS, None, &variables).unwrap();
    assert!(config.as_toml().contains("[example]"));
    let dir = DataDir::open(&config.data_dir).unwrap();
    let host = dir.host(ids().as_ref()).unwrap();
    let store = open_store(&config).await.unwrap();
    let keys = (&store, clock());
    let vault = KeyFollower::start(&config, &dir, keys, "test".to_owned()).await;
    let installation = Installation {
        host: &host,
        data_dir: &config.data_dir,
        variables: &variables,
    };
    let sandboxes = open_backend(&config, &installation, None).await.unwrap();
    assert_eq!(sandboxes.reason, "configured");
    let route = CallbackRoute::new(&config, sandboxes.features.network, config.http.bind);
    let tasks = BackgroundTasks::new(Handle::current());
    let parts = (config.http.bind, &route, &DiskSpace::new(&config), None);
    let (vault, _) = vault.unwrap();
    let service = service(
        &config,
        host.clone(),
        vault,
        &store,
        &sandboxes,
        tasks.clone(),
        parts,
    );
    let app = service.unwrap().app;
    background::spawn(&app);
    let started = app
        .sandboxes
        .start(&first_user().into(), None)
        .await
        .unwrap();
    let lifecycle = &sandboxes.ports.lifecycle;
    let is_running = async {
        while !matches!(
            lifecycle.inspect(&started.id).await.unwrap(),
            Some(BackendState::Running(_))
        ) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, is_running)
        .await
        .expect("the sandbox runs");
    assert!(tasks.stop(Duration::from_secs(10)).await);
    lifecycle.remove(&started.id).await.unwrap();
    assert_eq!(lifecycle.inspect(&started.id).await.unwrap(), None);
}

#[test]
fn the_backend_is_recorded_or_inferred_from_process_sandboxes() {
    let parent = tempfile::tempdir().unwrap();
    let dir = DataDir::open(parent.path()).unwrap();
    assert_eq!(previous_backend(&dir).unwrap(), None);
    std::fs::create_dir_all(parent.path().join("sandboxes").join("x")).unwrap();
    assert_eq!(previous_backend(&dir).unwrap().as_deref(), Some("process"));
    dir.record_backend("docker").unwrap();
    assert_eq!(previous_backend(&dir).unwrap().as_deref(), Some("docker"));
}

#[tokio::test]
async fn doctor_examines_the_backend() {
    let data = TempDir::new().unwrap();
    let variables = variables(&data);
    let config = Config::load(BACKENDS, None, &variables).unwrap();
    let report = doctor::examine(&config, &variables).await.render(false);
    for line in [
        "ok       sandboxes: example (configured)",
        "ok       agent server: sh -c exec sleep 1000 --",
        "ok       callbacks: sandboxes use http://127.0.0.1",
    ] {
        assert!(report.contains(line), "{line} is missing in {report}");
    }
}
