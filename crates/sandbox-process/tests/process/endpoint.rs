//! Whose a listening socket is: what holds a sandbox's port is not the sandbox because of that.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use domain::id::SandboxId;
use domain::sandbox::SandboxBackend;
use endpoint_guard::{Connector, EndpointGuard, GuardError, listener};
use hyper_util::client::legacy::connect::HttpConnector;
use sandbox_process::ProcessSandboxes;
use tokio::time::timeout;
use url::Url;

use super::support::{IDLE, ProcessFixture, launch, state, until};

/// Generous: what takes longer does not come.
const LIMIT: Duration = Duration::from_secs(60);

fn address(url: &Url) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, url.port().unwrap()))
}

async fn proven(backend: &ProcessSandboxes, sandbox: &SandboxId, address: SocketAddr) {
    let proof = async {
        while backend.prove(sandbox.as_str(), address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, proof).await.unwrap();
}

fn is_held_by_another<T>(proof: &Result<T, GuardError>) -> bool {
    matches!(proof, Err(GuardError::HeldByAnother(_)))
}

#[tokio::test]
async fn a_listener_is_proven_for_the_sandbox_that_holds_it_alone() {
    let lab = ProcessFixture::new();
    lab.listening_script();
    let backend = lab.backend().await;
    let (first, second) = (launch("s1"), launch("s2"));
    let endpoints = backend.start(&first).await.unwrap();
    let other = backend.start(&second).await.unwrap();
    let (at, at_other) = (address(&endpoints.agent_url), address(&other.agent_url));
    proven(&backend, &first.id, at).await;
    proven(&backend, &second.id, at_other).await;
    for (sandbox, address) in [("s1", at_other), ("s2", at), ("s3", at), ("no id", at)] {
        let proof = backend.prove(sandbox, address).await;
        assert!(is_held_by_another(&proof), "{sandbox}: {proof:?}");
    }
    // A service that has just begun and has not looked around yet.
    let next = lab.backend().await;
    let proof = next.prove("s1", at).await.unwrap();
    assert_eq!(proof, listener(at).unwrap());
    assert!(is_held_by_another(&next.prove("s2", at).await));
    backend.stop(&first.id).await.unwrap();
    for backend in [&backend, &next] {
        let proof = backend.prove("s1", at).await;
        assert!(
            matches!(proof, Err(GuardError::NotListening(_))),
            "{proof:?}"
        );
        let _thief = TcpListener::bind(at).unwrap();
        assert!(is_held_by_another(&backend.prove("s1", at).await));
    }
}

#[tokio::test]
async fn a_process_below_the_main_one_may_listen() {
    let lab = ProcessFixture::new();
    let exe = std::env::current_exe().unwrap();
    let exe = exe.display();
    lab.script(&format!(
        "FAKE_AGENT_SERVER=$4 setsid {exe} --exact support::fake_agent_server --nocapture & wait"
    ));
    let backend = lab.backend().await;
    let launch = launch("s1");
    let endpoints = backend.start(&launch).await.unwrap();
    proven(&backend, &launch.id, address(&endpoints.agent_url)).await;
}

/// Listens on the port before the agent server does, and tells how many bytes it got. Ends with its standard input.
const THIEF: &str = "
import os, socket, sys
port, uid = int(sys.argv[1]), int(sys.argv[2])
if uid:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('127.0.0.1', port)); s.listen()
print('listening', flush=True)
sys.stdin.read()
s.setblocking(False)
got = 0
while True:
    try: c, _ = s.accept()
    except BlockingIOError: break
    c.setblocking(True); got += len(c.recv(65536))
print(got)
";

fn thief(port: u16, uid: u32, variables: &[(&str, String)]) -> Child {
    Command::new("python3")
        .args(["-c", THIEF, &port.to_string(), &uid.to_string()])
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What it got, in bytes.
fn loot(mut thief: Child) -> String {
    drop(thief.stdin.take());
    let mut told = String::new();
    let mut out = thief.stdout.take().unwrap();
    out.read_to_string(&mut told).unwrap();
    thief.wait().unwrap();
    told
}

/// 100 takeovers: by another account and by a process with the sandbox's marker, at starts and at resumes.
#[tokio::test]
async fn a_process_that_listens_first_gets_no_connection() {
    let uid = rustix::process::geteuid();
    let other = if uid.is_root() { 65534 } else { 0 };
    let lab = ProcessFixture::new();
    lab.script(IDLE);
    let backend = Arc::new(lab.backend().await);
    let guard = Arc::clone(&backend) as Arc<dyn EndpointGuard>;
    let connector = Connector::new(HttpConnector::new(), LIMIT, guard);
    let mark = format!("{}/s1", lab.instance);
    let marked = [("AGENT_WORKSPACE_SANDBOX", mark)];
    let launch = launch("s1");
    for round in 0..25 {
        for (account, variables) in [(other, &[][..]), (0, &marked[..])] {
            for occasion in ["start", "resume"] {
                let endpoints = backend.start(&launch).await.unwrap();
                lab.ready(&launch.id).await;
                let at = address(&endpoints.agent_url);
                let thief = thief(at.port(), account, variables);
                until("the thief listens", || listener(at).unwrap().is_some()).await;
                let refused = connector.connect(&format!("s1@{at}")).await;
                let cause = refused.unwrap_err().to_string();
                let expected = format!(
                    "port {} is held by another process, not by this sandbox",
                    at.port()
                );
                let attempt = format!("round {round}, account {account}, {occasion}");
                assert_eq!(cause, expected, "{attempt}");
                assert_eq!(loot(thief), "listening\n0\n", "{attempt}");
                backend.stop(&launch.id).await.unwrap();
                assert!(state(&backend, &launch.id).await.is_some(), "{attempt}");
            }
            backend.remove(&launch.id).await.unwrap();
        }
    }
}
