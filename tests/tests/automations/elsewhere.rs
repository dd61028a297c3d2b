//! The automations service beside the service, as in its image and in a cluster.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use acceptance::Service;
use acceptance::wait::wait_for;
use tempfile::TempDir;

use crate::{
    TIMEOUT, automation, dispatch, post_webhook, rarely, upload, wait_for_run,
    wait_until_available, webhook,
};

const SERVICE_KEY: &str = "the-key-of-an-automations-service-in-tests";
const BOOT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../crates/sandbox-process/src/provision/boot_automations.py"
);

/// The installed package, started by the test.
struct Automations {
    process: Child,
    _files: TempDir,
}

impl Automations {
    /// Starts it at `port`. It calls the service, which is at `internal_url`, through `proxy`.
    fn start(python: &Path, port: u16, (internal_url, proxy): (&str, &str)) -> Self {
        let files = TempDir::new().expect("a temporary directory");
        let below = |name: &str| files.path().join(name).display().to_string();
        let process = Command::new(python)
            .args([BOOT, "--host", "127.0.0.1", "--port", &port.to_string()])
            .env("HOME", files.path())
            .env(
                "AUTOMATION_DB_URL",
                format!("sqlite+aiosqlite:///{}", below("automations.db")),
            )
            .env("FILE_STORE", "local")
            .env("LOCAL_STORAGE_PATH", below("files"))
            .env("AUTOMATION_OPENHANDS_API_BASE_URL", internal_url)
            .env("AUTOMATION_BASE_URL", internal_url)
            .env("AUTOMATION_SERVICE_KEY", SERVICE_KEY)
            .env("AUTOMATION_KV_SECRET", "a-secret-for-values-in-these-tests")
            .env("AUTOMATION_DISPATCHER_INTERVAL_SECONDS", "2")
            .env("AUTOMATION_POSTHOG_API_KEY", "")
            .env("HTTP_PROXY", proxy)
            .env("http_proxy", proxy)
            .env("NO_PROXY", "")
            .env("no_proxy", "")
            .spawn();
        Self {
            process: process.expect("the installed Python runs"),
            _files: files,
        }
    }
}

impl Drop for Automations {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// The Python of the package that the service has installed.
fn installed_python(service: &Service) -> PathBuf {
    let installations = service.data_dir().join("automations-server");
    let entries = std::fs::read_dir(&installations).expect("it is installed");
    let pythons = entries.map(|entry| entry.expect("an entry").path().join("bin/python"));
    let found = pythons.filter(|python| python.exists()).max();
    found.unwrap_or_else(|| panic!("no Python below {}", installations.display()))
}

/// The URL by which sandboxes call the service, as `doctor` names it.
fn internal_url(service: &Service) -> String {
    let output = service.run(&["doctor"]).stdout;
    let report = String::from_utf8_lossy(&output).into_owned();
    let found = report.split_once("call this service at ");
    let found = found.and_then(|(_, rest)| rest.split_whitespace().next());
    found.unwrap_or_else(|| panic!("{report}")).to_owned()
}

/// A service that has installed the package uses one that runs elsewhere.
pub(crate) async fn run_elsewhere(service: &mut Service) {
    let [port, calls] = [free_port(), free_port()];
    for (name, value) in [
        ("URL", format!("http://127.0.0.1:{port}")),
        ("BIND", format!("127.0.0.1:{calls}")),
        ("SERVICE_KEY", SERVICE_KEY.to_owned()),
    ] {
        service.set_variable(&format!("WORKSPACE_AUTOMATIONS__{name}"), &value);
    }
    service.restart().await;
    let user = service.admin();
    let health = user.get("/api/automation/health").await.ok();
    assert_ne!(health["status"], "ok", "{health}");

    let python = installed_python(service);
    let internal_url = internal_url(service);
    let proxy = format!("http://127.0.0.1:{calls}");
    let automations = Automations::start(&python, port, (&internal_url, &proxy));
    wait_until_available(&user).await;
    let archive = upload(service, &user).await;
    let by_hand = automation(&user, &archive, &rarely()).await;
    dispatch(&user, &by_hand).await;
    wait_for_run(&user, &by_hand, 1).await;
    let [_, url, secret] = webhook(&user).await;
    assert!(url.starts_with(&service.url()), "{url}");
    // No automation waits for it.
    assert_eq!(post_webhook(&url, &secret).await, 200);

    drop(automations);
    wait_for("the end of the automations service", TIMEOUT, || async {
        let health = user.get("/api/automation/health").await.ok();
        (health["status"] != "ok").then_some(())
    })
    .await;
}
