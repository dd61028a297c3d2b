//! Other processes that listen on ports of sandboxes, before their agent servers start and after they have ended.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use acceptance::client::Sandbox;
use acceptance::wait::wait_for;
use acceptance::{Client, Service, Stub};
use futures::future::join_all;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::RECONCILE_TIMEOUT;

const PORT_THIEF: &str = include_str!("port_thief.py");
/// The account `nobody`.
const NOBODY_UID: u32 = 65534;
const SANDBOXES: usize = 10;
/// Each of these starts or resumes each sandbox once.
const ROUNDS: usize = 10;

struct PortThief(Child);

impl PortThief {
    fn start(stub: &Stub, account: u32, marker: &str) -> Self {
        let mark = stub.dir().display().to_string();
        let child = Command::new("python3")
            .args(["-c", PORT_THIEF, &mark, &account.to_string()])
            .env("AGENT_WORKSPACE_SANDBOX", marker)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Self(child.expect("cannot run python3"))
    }

    fn stop(mut self) -> Value {
        drop(self.0.stdin.take());
        let mut report = String::new();
        let mut out = self.0.stdout.take().expect("the thief has no pipe");
        out.read_to_string(&mut report)
            .expect("cannot read the thief's report");
        self.0.wait().expect("cannot wait for the thief");
        serde_json::from_str(&report).expect("the thief's report is not JSON")
    }
}

/// Waits until a sandbox runs, or has failed with a cause.
async fn wait_for_settled(user: &Client, id: &str) -> Sandbox {
    let sandbox = wait_for("the end of a start", RECONCILE_TIMEOUT, || async {
        let sandbox = user.sandbox(id).await?;
        (sandbox.status != "STARTING").then_some(sandbox)
    })
    .await;
    match sandbox.status.as_str() {
        "RUNNING" => {}
        "ERROR" => {
            let cause = sandbox.status_detail.clone().unwrap_or_default();
            assert!(!cause.is_empty(), "a failed sandbox must have a cause");
        }
        other => panic!("{other}: {:?}", sandbox.status_detail),
    }
    sandbox
}

/// Kills the agent servers of all sandboxes but `neighbour`, and calls them while their rows still hold the addresses.
async fn kill_agent_servers_and_call(
    service: &Service,
    user: &Client,
    neighbour: &str,
    running_sandboxes: &[&Sandbox],
) {
    // A port is free before the row is updated.
    let servers = service.agent_servers().into_iter();
    servers
        .filter(|server| server.sandbox != neighbour)
        .for_each(|server| server.signal(Signal::KILL));
    let calls = running_sandboxes.iter().map(|sandbox| async {
        let key = sandbox.session_api_key.clone().unwrap_or_default();
        let direct = Client::new(service.url(), &key);
        for _ in 0..20 {
            let answer = direct.get("/api/conversations/count").await;
            assert!(answer.status == 200 || answer.status >= 400);
        }
    });
    join_all(calls).await;
    let failed = running_sandboxes
        .iter()
        .map(|it| user.wait_for_sandbox_status(&it.id, "ERROR", RECONCILE_TIMEOUT));
    join_all(failed).await;
}

/// One thief runs as another account, if the suite may do that. The other one belongs to another sandbox, which keeps running.
fn start_thieves(stub: &Stub, neighbour_marker: &str) -> [PortThief; 2] {
    let is_root = rustix::process::geteuid().is_root();
    let account = if is_root { NOBODY_UID } else { 0 };
    [
        PortThief::start(stub, account, ""),
        PortThief::start(stub, 0, neighbour_marker),
    ]
}

/// Stops a thief that took ports and received no byte.
fn stop_without_bytes(thief: PortThief) -> Value {
    let report = thief.stop();
    assert!(
        report["taken"].as_u64() > Some(0),
        "the thief took no port: {report}"
    );
    assert_eq!(report["bytes"], 0, "the thief received bytes: {report}");
    report
}

/// The service sends session keys only to the process that it has started: at a start, at a resume, and after an agent server has
/// died while the row still holds its address.
#[tokio::test]
async fn process_on_the_port_of_an_agent_server_receives_no_byte() {
    let stub = Stub::new();
    let service = Service::builder()
        .stub(&stub)
        .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "50")
        .env("WORKSPACE_SANDBOX__PARALLEL_STARTS", "10")
        .start()
        .await;
    let user = service.admin();
    let instance = service
        .instance()
        .expect("the service has no instance name");
    stub.set_faults("");
    let neighbour = user.start_sandbox().await.id;
    user.wait_for_sandbox_status(&neighbour, "RUNNING", RECONCILE_TIMEOUT)
        .await;
    stub.set_faults("boots-slowly");
    let thieves = start_thieves(&stub, &format!("{instance}/{neighbour}"));
    let ids = join_all((0..SANDBOXES).map(|_| user.start_sandbox())).await;
    let ids: Vec<String> = ids.into_iter().map(|sandbox| sandbox.id).collect();
    let mut started = 0;
    for round in 0..ROUNDS {
        let sandboxes = join_all(ids.iter().map(|id| wait_for_settled(&user, id))).await;
        let running_sandboxes: Vec<_> = sandboxes
            .iter()
            .filter(|it| it.status == "RUNNING")
            .collect();
        started += running_sandboxes.len();
        if round + 1 == ROUNDS {
            break;
        }
        if round % 2 == 0 {
            kill_agent_servers_and_call(&service, &user, &neighbour, &running_sandboxes).await;
        } else {
            join_all(running_sandboxes.iter().map(|it| user.pause(&it.id))).await;
            let paused = running_sandboxes
                .iter()
                .map(|it| user.wait_for_sandbox_status(&it.id, "PAUSED", RECONCILE_TIMEOUT));
            join_all(paused).await;
        }
        for id in &ids {
            let path = format!("/api/v1/sandboxes/{id}/resume");
            let resumed = user.post(&path, &Value::Null).await;
            assert!(resumed.status < 300, "{}", resumed.text);
        }
    }
    let reports = thieves.map(stop_without_bytes);
    assert!(
        started > 0,
        "every port was taken, so the test proves nothing"
    );
    acceptance::print_line(&format!(
        "{started} starts of {} ran; {reports:?}",
        SANDBOXES * ROUNDS
    ));
}
