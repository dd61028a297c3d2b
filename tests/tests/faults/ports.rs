//! Processes of this machine that listen on the ports of sandboxes, before their agent servers do and after these have ended.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use acceptance::client::Sandbox;
use acceptance::wait::wait_for;
use acceptance::{Client, Service, Stub};
use futures::future::join_all;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::RECONCILE_TIMEOUT;

const THIEF: &str = include_str!("port_thief.py");
/// The account `nobody`.
const NOBODY_UID: u32 = 65534;
const SANDBOXES: usize = 10;
/// Each of these starts or resumes each sandbox once.
const ROUNDS: usize = 10;

struct Thief(Child);

impl Thief {
    fn start(stub: &Stub, account: u32, marker: &str) -> Self {
        let mark = stub.dir().display().to_string();
        let child = Command::new("python3")
            .args(["-c", THIEF, &mark, &account.to_string()])
            .env("AGENT_WORKSPACE_SANDBOX", marker)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Self(child.expect("there is a Python"))
    }

    fn ends(mut self) -> Value {
        drop(self.0.stdin.take());
        let mut told = String::new();
        let mut out = self.0.stdout.take().expect("a pipe");
        out.read_to_string(&mut told).expect("it tells");
        self.0.wait().expect("it ends");
        serde_json::from_str(&told).expect("what it was sent")
    }
}

/// It runs, or it failed with a cause.
async fn settled(user: &Client, id: &str) -> Sandbox {
    let sandbox = wait_for("the end of a start", RECONCILE_TIMEOUT, || async {
        let now = user.sandbox(id).await?;
        (now.status != "STARTING").then_some(now)
    })
    .await;
    match sandbox.status.as_str() {
        "RUNNING" => {}
        "ERROR" => {
            let cause = sandbox.status_detail.clone().unwrap_or_default();
            assert!(!cause.is_empty(), "it has a cause");
        }
        other => panic!("{other}: {:?}", sandbox.status_detail),
    }
    sandbox
}

/// Kills the agent servers of all sandboxes but `den`, and calls them while their rows still have the addresses.
async fn kill_and_call(service: &Service, user: &Client, den: &str, up: &[&Sandbox]) {
    // Its port is free before the row says so.
    let servers = service.agent_servers().into_iter();
    servers
        .filter(|server| server.sandbox != den)
        .for_each(|server| server.signal(Signal::KILL));
    let calls = up.iter().map(|sandbox| async {
        let key = sandbox.session_api_key.clone().unwrap_or_default();
        let direct = Client::new(service.url(), &key);
        for _ in 0..20 {
            let answer = direct.get("/api/conversations/count").await;
            assert!(answer.status == 200 || answer.status >= 400);
        }
    });
    join_all(calls).await;
    let failed = up
        .iter()
        .map(|it| user.sandbox_becomes(&it.id, "ERROR", RECONCILE_TIMEOUT));
    join_all(failed).await;
}

/// A key goes to no other process than the one that the service has started: not at a start, not at a resume, not when an agent
/// server has died and the row still has its address.
#[tokio::test]
async fn who_takes_the_port_of_an_agent_server_is_sent_no_byte() {
    let stub = Stub::new();
    let service = Service::builder()
        .stub(&stub)
        .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "50")
        .env("WORKSPACE_SANDBOX__PARALLEL_STARTS", "10")
        .start()
        .await;
    let user = service.admin();
    let instance = service.instance().expect("it has started");
    // One of another account where that can be had, and one that belongs to another sandbox, which goes on running.
    stub.set("");
    let den = user.start_sandbox().await.id;
    user.sandbox_becomes(&den, "RUNNING", RECONCILE_TIMEOUT)
        .await;
    stub.set("boots-slowly");
    let account = if rustix::process::geteuid().is_root() {
        NOBODY_UID
    } else {
        0
    };
    let thieves = [
        Thief::start(&stub, account, ""),
        Thief::start(&stub, 0, &format!("{instance}/{den}")),
    ];
    let ids = join_all((0..SANDBOXES).map(|_| user.start_sandbox())).await;
    let ids: Vec<String> = ids.into_iter().map(|sandbox| sandbox.id).collect();
    let mut running = 0;
    for round in 0..ROUNDS {
        let now = join_all(ids.iter().map(|id| settled(&user, id))).await;
        let up: Vec<_> = now.iter().filter(|it| it.status == "RUNNING").collect();
        running += up.len();
        if round + 1 == ROUNDS {
            break;
        }
        if round % 2 == 0 {
            kill_and_call(&service, &user, &den, &up).await;
        } else {
            join_all(up.iter().map(|it| user.pause(&it.id))).await;
            let paused = up
                .iter()
                .map(|it| user.sandbox_becomes(&it.id, "PAUSED", RECONCILE_TIMEOUT));
            join_all(paused).await;
        }
        for id in &ids {
            let path = format!("/api/v1/sandboxes/{id}/resume");
            let resumed = user.post(&path, &Value::Null).await;
            assert!(resumed.status < 300, "{}", resumed.text);
        }
    }
    let told = thieves.map(Thief::ends);
    for told in &told {
        assert!(told["taken"].as_u64() > Some(0), "it tried: {told}");
        assert_eq!(told["bytes"], 0, "{told}");
    }
    assert!(running > 0, "some are not taken");
    acceptance::print_line(&format!(
        "{running} starts of {} ran; {told:?}",
        SANDBOXES * ROUNDS
    ));
}
