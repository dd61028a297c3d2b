//! Automations with the unmodified automations service, which the service under test installs, and the real agent server.

mod browser;
mod crashes;
mod elsewhere;
mod tenancy;

use std::process::Command;
use std::time::Duration;

use acceptance::agent_server::{Version, web_application};
use acceptance::browser::Browser;
use acceptance::wait::wait_for;
use acceptance::{Builder, Client, Postgres, Sandboxing, Service};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

pub(crate) const API: &str = "/api/automation/v1";
/// An installation, a start, or a run, on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);

/// What a run executes: it looks at what it is given, and reports its end.
const SCRIPT: &str = r#"
import json, os, socket, sys, time, urllib.error, urllib.request

open("/workspace/ran-" + os.environ["AUTOMATION_RUN_ID"], "w").close()
key, api = os.environ["OPENHANDS_API_KEY"], os.environ["OPENHANDS_CLOUD_API_URL"]
session = os.environ["SESSION_API_KEY"]

def status(method, url, headers, body=None):
    request = urllib.request.Request(url, body, headers, method=method)
    try:
        return urllib.request.urlopen(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code

bearer = {"Authorization": "Bearer " + key}
problems = []
if os.getcwd() != "/workspace/project":
    problems.append("cwd " + os.getcwd())
port = int(os.environ["AGENT_SERVER_PORT"])
socket.create_connection(("127.0.0.1", port), 10).close()
if status("GET", api + "/api/v1/users/me?expose_secrets=true", {**bearer, "X-Session-API-Key": session}) != 200:
    problems.append("users/me")
for path in ["/api/v1/settings", "/api/v1/keys", "/api/automation/v1", "/api/v1/sandboxes"]:
    if status("GET", api + path, bearer) == 200:
        problems.append(path + " is open")
api, counter = os.environ["AUTOMATION_API_URL"], {"Authorization": "Bearer " + os.environ["AUTOMATION_KV_TOKEN"]}
for attempt in range(60):
    # The automations service may be killed in this moment.
    try:
        counted = status("POST", api + "/v1/kv/runs/incr", counter)
    except OSError:
        counted = 503
    if counted < 500:
        break
    time.sleep(1)
if counted != 200:
    problems.append("kv " + str(counted))
result = {"status": "FAILED", "error": ", ".join(problems)} if problems else {"status": "COMPLETED"}
result["run_id"] = os.environ["AUTOMATION_RUN_ID"]
# The automations service keeps the id of a sandbox only after the command has started.
time.sleep(2)
headers = {**bearer, "Content-Type": "application/json"}
for attempt in range(60):
    # The automations service may be killed in this moment.
    try:
        reported = status("POST", os.environ["AUTOMATION_CALLBACK_URL"], headers, json.dumps(result).encode())
    except OSError:
        reported = 503
    if reported < 500:
        break
    time.sleep(1)
sys.exit(reported != 200)
"#;

pub(crate) fn http() -> reqwest::Client {
    let client = reqwest::Client::builder().timeout(TIMEOUT).build();
    client.expect("a client")
}

async fn wait_until_available(user: &Client) {
    wait_for("the automations service", TIMEOUT, || async {
        let health = user.get("/api/automation/health").await.ok();
        (health["status"] == "ok").then_some(())
    })
    .await;
}

/// The archive with the script, gzipped.
fn archive() -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("main.py"), SCRIPT).expect("it is writable");
    let mut tar = Command::new("tar");
    tar.args(["-cz", "-C"]).arg(dir.path()).arg("main.py");
    let output = tar.output().expect("tar runs");
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// Uploads the archive; returns its id.
async fn upload(service: &Service, user: &Client) -> String {
    let upload = http()
        .post(format!("{}{API}/uploads?name=script", service.url()))
        .header("X-Session-API-Key", user.key())
        .header("Content-Type", "application/gzip")
        .body(archive());
    let upload = upload.send().await.expect("the service answers");
    let upload: Value = upload.json().await.expect("JSON");
    upload["id"].as_str().expect("an id").to_owned()
}

/// Makes an automation of an upload; returns its id.
async fn automation(user: &Client, upload: &str, trigger: &Value) -> String {
    let body = json!({"name": "script", "trigger": trigger, "entrypoint": "python3 main.py",
        "tarball_path": format!("oh-internal://uploads/{upload}")});
    let made = user.post(API, &body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let made: Value = serde_json::from_str(&made.text).expect("JSON");
    made["id"].as_str().expect("an id").to_owned()
}

/// The runs of an automation, the latest first.
pub(crate) async fn runs_of(user: &Client, automation: &str) -> Vec<Value> {
    let page = user.get(&format!("{API}/{automation}/runs")).await.ok();
    page["runs"].as_array().cloned().unwrap_or_default()
}

/// Waits until the latest of `count` runs has ended well, and its sandbox is gone.
async fn wait_for_run(user: &Client, automation: &str, count: usize) {
    let run = wait_for("the end of a run", TIMEOUT, || async {
        let runs = runs_of(user, automation).await;
        let is_over = |run: &&Value| !matches!(run["status"].as_str(), Some("PENDING" | "RUNNING"));
        let run = runs.first().filter(is_over).cloned();
        run.filter(|_| runs.len() == count)
    })
    .await;
    assert_eq!(run["status"], "COMPLETED", "{run}");
    wait_for("the end of the run's sandbox", TIMEOUT, || async {
        user.sandboxes().await.is_empty().then_some(())
    })
    .await;
}

async fn dispatch(user: &Client, automation: &str) {
    let path = format!("{API}/{automation}/dispatch");
    let started = user.call(Method::POST, &path, None).await;
    assert_eq!(started.status, 201, "{}", started.text);
}

/// The signature of a webhook (RFC 2104).
fn signature(secret: &str, body: &str) -> String {
    let mut key = [0; 64];
    key[..secret.len()].copy_from_slice(secret.as_bytes());
    let pad = |byte: u8| key.map(|part| part ^ byte);
    let inner = Sha256::new_with_prefix(pad(0x36))
        .chain_update(body)
        .finalize();
    let outer = Sha256::new_with_prefix(pad(0x5c))
        .chain_update(inner)
        .finalize();
    format!("sha256={outer:x}")
}

/// Sends a webhook to the address that its owner got; returns the status.
async fn post_webhook(url: &str, secret: &str) -> u16 {
    let body = r#"{"type": "opened"}"#;
    let request = http()
        .post(url)
        .header("X-Signature-256", signature(secret, body))
        .header("Content-Type", "application/json")
        .body(body);
    let answer = request.send().await.expect("the service answers");
    answer.status().as_u16()
}

/// How many runs of an automation have counted themselves.
async fn counted_runs(user: &Client, automation: &str) -> u64 {
    let path = format!("{API}/kv/runs?automation_id={automation}");
    let kept = user.get(&path).await.ok();
    kept["value"].as_u64().expect("a number")
}

fn pid_of_automations(service: &Service) -> Vec<String> {
    let output = Command::new("pgrep")
        .args(["-f", "automations-server/.*/boot.py"])
        .output()
        .expect("pgrep runs");
    let marker = service.data_dir().display().to_string();
    let all = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_of_service = |pid: &&str| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        memchr::memmem::find(&environment, marker.as_bytes()).is_some()
    };
    all.lines()
        .filter(is_of_service)
        .map(str::to_owned)
        .collect()
}

fn kill_automations(service: &Service) {
    // There may be none, shortly after the last kill.
    let _ = Command::new("kill")
        .arg("-9")
        .args(pid_of_automations(service))
        .output();
}

/// Kills the automations service while it prepares the second run, which then starts again in another sandbox.
async fn kill_while_it_prepares(service: &Service, user: &Client, automation: &str) {
    dispatch(user, automation).await;
    wait_for("a sandbox of the run", TIMEOUT, || async {
        (!user.sandboxes().await.is_empty()).then_some(())
    })
    .await;
    kill_automations(service);
    wait_for("the end of the process", TIMEOUT, || async {
        let health = user.get("/api/automation/health").await.ok();
        (health["status"] != "ok").then_some(())
    })
    .await;
    wait_until_available(user).await;
    wait_for_run(user, automation, 2).await;
}

/// A webhook of the caller's organization: its id, its address and its secret.
async fn webhook(user: &Client) -> [String; 3] {
    let made = json!({"name": "hook", "source": "my-hook"});
    let made = user.post(&format!("{API}/webhooks"), &made).await;
    let made: Value = serde_json::from_str(&made.text).expect("JSON");
    let text = |name: &str| made[name].as_str().expect("a text").to_owned();
    ["id", "webhook_url", "webhook_secret"].map(text)
}

/// Once a year.
fn rarely() -> Value {
    json!({"type": "cron", "schedule": "0 0 1 1 *"})
}

fn with_automations() -> Builder {
    Service::builder()
        .sandboxing(&Sandboxing::Process)
        // Runs exchange files with the service in `/tmp`.
        .below("/var/lib")
        .installed_agent_server(Version::V1_58_0)
        .env("WORKSPACE_AUTOMATIONS__ENABLED", "auto")
}

#[tokio::test]
#[ignore = "a part of `cargo xtask nightly`; the other test kills each process once"]
async fn killed_processes_leave_each_run_with_an_end_and_duplicate_none() {
    let postgres = Postgres::start();
    let service = with_automations()
        .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "40")
        .postgres(&postgres)
        .start()
        .await;
    crashes::end_each_run_once((service, postgres), 200, 30).await;
}

#[tokio::test]
async fn runs_start_by_hand_by_webhook_and_in_the_browser_and_survive_a_crash_of_the_service() {
    Box::pin(start_runs_in_all_ways(with_automations())).await;
}

#[tokio::test]
#[ignore = "a part of `cargo xtask nightly`; the other test has the pinned release"]
async fn the_next_release_runs_in_the_same_way() {
    let next = with_automations().env("WORKSPACE_AUTOMATIONS__VERSION", "1.26.0");
    Box::pin(start_runs_in_all_ways(next)).await;
}

async fn start_runs_in_all_ways(builder: Builder) {
    let mut service = builder
        .env("WORKSPACE_WEB__DIR", &web_application())
        .start()
        .await;
    let (admin, bob) = (service.admin(), service.user("bob"));
    wait_until_available(&admin).await;
    let archive = upload(&service, &admin).await;
    let by_hand = automation(&admin, &archive, &rarely()).await;
    dispatch(&admin, &by_hand).await;
    wait_for_run(&admin, &by_hand, 1).await;
    assert_eq!(counted_runs(&admin, &by_hand).await, 1);

    kill_while_it_prepares(&service, &admin, &by_hand).await;
    // The command of a run that is cut off may have counted too.
    assert!(counted_runs(&admin, &by_hand).await >= 2);

    let [hook, url, secret] = webhook(&admin).await;
    let run = runs_of(&admin, &by_hand).await.remove(0);
    let objects = tenancy::OwnObjects {
        automation: by_hand.clone(),
        run: run["id"].as_str().expect("an id").to_owned(),
        upload: archive.clone(),
        webhook: hook,
        organization: organization_of(&admin).await,
    };
    tenancy::assert_hidden(&service, &bob, &objects).await;

    let processes = pid_of_automations(&service);
    assert!(
        !processes.is_empty(),
        "no process of the automations service"
    );
    service.kill9();
    service.restart().await;
    let admin = service.admin();
    wait_until_available(&admin).await;
    assert_eq!(pid_of_automations(&service), processes, "it is adopted");

    assert!(url.starts_with(&service.url()), "{url}");
    let opened = json!({"type": "event", "source": "my-hook", "on": "opened"});
    let by_webhook = automation(&admin, &archive, &opened).await;
    assert_eq!(post_webhook(&url, "wrong").await, 401);
    assert_eq!(post_webhook(&url, &secret).await, 200);
    wait_for_run(&admin, &by_webhook, 1).await;

    service.set_variable("WORKSPACE_AUTH__MODE", "open");
    service.set_variable("WORKSPACE_WEB__ENABLED", "auto");
    service.restart().await;
    wait_until_available(&admin).await;
    let mut browser = Browser::start().await;
    browser::run_in_the_web_application(&service, &mut browser, &admin, &by_hand).await;
    wait_for_run(&admin, &by_hand, 3).await;
    browser::look_in_the_console(&service, &mut browser, &admin, &by_hand).await;

    service.stop().await;
    let all_ended = || pid_of_automations(&service).is_empty();
    acceptance::wait::wait_until("the end of the automations service", TIMEOUT, all_ended).await;

    elsewhere::run_elsewhere(&mut service).await;
}

/// The id of the caller's personal organization, with dashes.
async fn organization_of(user: &Client) -> String {
    let known = user.get("/api/organizations").await.ok();
    let id = known["current_org_id"].as_str().expect("an id");
    let id: uuid::Uuid = id.parse().expect("a UUID");
    id.to_string()
}
