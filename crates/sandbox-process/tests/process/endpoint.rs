//! Proofs that a listening socket belongs to a sandbox.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use domain::id::SandboxId;
use domain::sandbox::SandboxLifecycle;
use endpoint_guard::{Connector, EndpointGuard, GuardError, listener};
use hyper_util::client::legacy::connect::HttpConnector;
use sandbox_process::ProcessSandboxes;
use tokio::time::timeout;
use url::Url;

use super::support::{IDLE, ProcessFixture, WAIT_TIMEOUT, launch, state, wait_until};

fn address(url: &Url) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, url.port().unwrap()))
}

async fn wait_for_proof(backend: &ProcessSandboxes, sandbox: &SandboxId, address: SocketAddr) {
    let proof = async {
        while backend.prove(sandbox.as_str(), address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(WAIT_TIMEOUT, proof).await.unwrap();
}

fn is_held_by_another<T>(proof: &Result<T, GuardError>) -> bool {
    matches!(proof, Err(GuardError::HeldByAnother(_)))
}

#[tokio::test]
async fn a_listener_is_proven_only_for_its_own_sandbox() {
    let fixture = ProcessFixture::new();
    fixture.listening_script();
    let backend = fixture.backend().await;
    let (first, second) = (launch("s1"), launch("s2"));
    let endpoints = backend.start(&first).await.unwrap();
    let other = backend.start(&second).await.unwrap();
    let (at, at_other) = (address(&endpoints.agent_url), address(&other.agent_url));
    wait_for_proof(&backend, &first.id, at).await;
    wait_for_proof(&backend, &second.id, at_other).await;
    for (sandbox, address) in [("s1", at_other), ("s2", at), ("s3", at), ("no id", at)] {
        let proof = backend.prove(sandbox, address).await;
        assert!(is_held_by_another(&proof), "{sandbox}: {proof:?}");
    }
    // A service that has not adopted the sandbox yet.
    let next = fixture.backend().await;
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
        let _other_listener = TcpListener::bind(at).unwrap();
        assert!(is_held_by_another(&backend.prove("s1", at).await));
    }
}

#[tokio::test]
async fn a_descendant_of_the_main_process_may_listen() {
    let fixture = ProcessFixture::new();
    let exe = std::env::current_exe().unwrap();
    let exe = exe.display();
    fixture.set_agent_script(&format!(
        "FAKE_AGENT_SERVER=$4 setsid {exe} --exact support::fake_agent_server --nocapture & wait"
    ));
    let backend = fixture.backend().await;
    let launch = launch("s1");
    let endpoints = backend.start(&launch).await.unwrap();
    wait_for_proof(&backend, &launch.id, address(&endpoints.agent_url)).await;
}

/// Listens on the port before the agent server does, and prints the number of received bytes. Ends with its standard
/// input.
const FOREIGN_LISTENER: &str = "
import os, socket, sys
port, uid = int(sys.argv[1]), int(sys.argv[2])
if uid:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('127.0.0.1', port)); s.listen()
print('listening', flush=True)
sys.stdin.read()
s.setblocking(False)
received = 0
while True:
    try: c, _ = s.accept()
    except BlockingIOError: break
    c.setblocking(True); received += len(c.recv(65536))
print(received)
";

fn start_foreign_listener(port: u16, uid: u32, variables: &[(&str, String)]) -> Child {
    Command::new("python3")
        .args(["-c", FOREIGN_LISTENER, &port.to_string(), &uid.to_string()])
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Stops the listener and returns its output.
fn output_of(mut listener: Child) -> String {
    drop(listener.stdin.take());
    let mut output = String::new();
    let mut out = listener.stdout.take().unwrap();
    out.read_to_string(&mut output).unwrap();
    listener.wait().unwrap();
    output
}

/// 100 takeovers: by another account and by a process with the sandbox's marker, at starts and at resumes.
#[tokio::test]
async fn a_foreign_listener_receives_no_connection() {
    let uid = rustix::process::geteuid();
    let other = if uid.is_root() { 65534 } else { 0 };
    let fixture = ProcessFixture::new();
    fixture.set_agent_script(IDLE);
    let backend = Arc::new(fixture.backend().await);
    let guard = Arc::clone(&backend) as Arc<dyn EndpointGuard>;
    let connector = Connector::new(HttpConnector::new(), WAIT_TIMEOUT, guard);
    let mark = format!("{}/s1", fixture.instance);
    let marked = [("AGENT_WORKSPACE_SANDBOX", mark)];
    let launch = launch("s1");
    for round in 0..4 {
        for (account, variables) in [(other, &[][..]), (0, &marked[..])] {
            for occasion in ["start", "resume"] {
                let endpoints = backend.start(&launch).await.unwrap();
                fixture.ready(&launch.id).await;
                let at = address(&endpoints.agent_url);
                let foreign = start_foreign_listener(at.port(), account, variables);
                wait_until("the foreign process listens", || {
                    listener(at).unwrap().is_some()
                })
                .await;
                let refused = connector.connect(&format!("s1@{at}")).await;
                let cause = refused.unwrap_err().to_string();
                let expected = format!(
                    "port {} is held by another process, not by this sandbox",
                    at.port()
                );
                let attempt = format!("round {round}, account {account}, {occasion}");
                assert_eq!(cause, expected, "{attempt}");
                assert_eq!(output_of(foreign), "listening\n0\n", "{attempt}");
                backend.stop(&launch.id).await.unwrap();
                assert!(state(&backend, &launch.id).await.is_some(), "{attempt}");
            }
            backend.remove(&launch.id).await.unwrap();
        }
    }
}
