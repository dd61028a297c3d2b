//! What a confined sandbox reaches with an egress policy.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;

use async_trait::async_trait;
use domain::error::BoxError;
use domain::id::SandboxId;
use domain::sandbox::{BackendState, SandboxLifecycle as _};
use sandbox_process::{NetworkPolicy, ProcessConfig, ProcessSandboxes};
use sandbox_provider::EgressGateway;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::support::{IDLE, ProcessFixture, launch, wait_until};

/// Tells its client which sandbox it is.
#[derive(Debug)]
struct NamingGateway;

#[async_trait]
impl EgressGateway for NamingGateway {
    async fn serve(&self, sandbox: &SandboxId, mut stream: TcpStream) {
        let _ = stream.write_all(sandbox.as_str().as_bytes()).await;
    }

    fn authority(&self, sandbox: &SandboxId) -> Result<Option<String>, BoxError> {
        Ok(Some(format!("authority of {sandbox}\n")))
    }
}

fn config(fixture: &ProcessFixture, network: NetworkPolicy) -> ProcessConfig {
    let mut config = fixture.config();
    let confinement = config.confinement.as_mut().unwrap();
    confinement.network = network;
    if network != NetworkPolicy::None {
        let gateway: Arc<dyn EgressGateway> = Arc::new(NamingGateway);
        confinement.egress = Some(Arc::new(gateway.into()));
    }
    config
}

/// Tries to reach other machines without the proxy, and then connects to it, also without its variables.
const ATTEMPTS: &str = r#"
try() { name=$1; shift; if env -u https_proxy -u HTTPS_PROXY timeout 5 "$@" > /dev/null 2>&1; then echo "$name: succeeded"; else echo "$name: refused"; fi; }
until bash -c 'exec 3<>/dev/tcp/127.0.0.2/26228' 2> /dev/null || test -e workspace/alone; do sleep 0.02; done
{
try public bash -c 'exec 3<>/dev/tcp/1.1.1.1/443'
try "public by IPv6" bash -c 'exec 3<>/dev/tcp/2606:4700:4700::1111/443'
try "outer resolver" bash -c 'exec 3<>/dev/udp/8.8.8.8/53 && echo x >&3'
try QUIC bash -c 'exec 3<>/dev/udp/1.1.1.1/443 && echo x >&3'
try metadata bash -c 'exec 3<>/dev/tcp/169.254.169.254/80'
try host bash -c 'exec 3<>/dev/tcp/10.0.2.2/HOSTPORT'
try loopback bash -c 'exec 3<>/dev/tcp/127.0.0.1/HOSTPORT'
try "other loopback" bash -c 'exec 3<>/dev/tcp/127.0.0.2/HOSTPORT'
try interface grep -v -e lo: -e '|' /proc/net/dev
try route ip route add default dev lo
echo "proxy: $HTTPS_PROXY $https_proxy $HTTP_PROXY $http_proxy"
echo "sandbox: $(bash -c 'exec 3<>/dev/tcp/127.0.0.2/26228 && cat <&3')"
} > workspace/results.new 2> /dev/null
mv workspace/results.new workspace/results
sleep 600 & wait"#;

async fn results(network: NetworkPolicy) -> Vec<String> {
    let fixture = ProcessFixture::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut script = ATTEMPTS.replace("HOSTPORT", &port);
    if network == NetworkPolicy::None {
        script.insert_str(0, "touch workspace/alone\n");
    }
    fixture.set_agent_script(&script);
    let backend = ProcessSandboxes::new(config(&fixture, network)).await;
    let (backend, launch) = (backend.unwrap(), launch("s1"));
    backend.start(&launch).await.unwrap();
    let results = fixture.root(&launch.id).join("workspace/results");
    wait_until("the attempts are done", || results.exists()).await;
    let text = fs::read_to_string(results).unwrap();
    backend.remove(&launch.id).await.unwrap();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn with_the_proxy_a_sandbox_has_no_other_way_out() {
    let lines = results(NetworkPolicy::Proxy).await;
    let (attempts, [proxy, sandbox]) = lines.split_last_chunk::<2>().unwrap();
    assert_eq!(attempts.len(), 10, "{lines:?}");
    assert!(
        attempts.iter().all(|line| line.ends_with(": refused")),
        "{lines:?}"
    );
    let url = "http://127.0.0.2:26228";
    assert_eq!(proxy, &format!("proxy: {url} {url} {url} {url}"));
    assert_eq!(sandbox, "sandbox: s1");
}

#[tokio::test]
async fn without_a_network_there_is_no_proxy_either() {
    let lines = results(NetworkPolicy::None).await;
    let (attempts, [proxy, sandbox]) = lines.split_last_chunk::<2>().unwrap();
    assert!(
        attempts.iter().all(|line| line.ends_with(": refused")),
        "{lines:?}"
    );
    assert_eq!((proxy.trim(), sandbox.trim()), ("proxy:", "sandbox:"));
}

#[tokio::test]
async fn a_running_sandbox_with_another_network_is_stopped() {
    let fixture = ProcessFixture::new();
    fixture.set_agent_script(IDLE);
    let launch = launch("s1");
    let open = ProcessSandboxes::new(config(&fixture, NetworkPolicy::Open)).await;
    let open = open.unwrap();
    open.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    drop(open);
    let strict = ProcessSandboxes::new(config(&fixture, NetworkPolicy::Proxy)).await;
    let strict = strict.unwrap();
    for _again in 0..2 {
        let state = strict.inspect(&launch.id).await.unwrap();
        let Some(BackendState::Exited { detail }) = state else {
            panic!("{state:?}");
        };
        assert!(detail.contains("egress.policy"), "{detail}");
    }
    strict.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    drop(strict);
    let same = ProcessSandboxes::new(config(&fixture, NetworkPolicy::Proxy)).await;
    let state = same.unwrap().inspect(&launch.id).await.unwrap();
    assert!(matches!(state, Some(BackendState::Running(_))), "{state:?}");
    // A start replaces it as well.
    let open = ProcessSandboxes::new(config(&fixture, NetworkPolicy::Open)).await;
    let open = open.unwrap();
    open.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    let state = open.inspect(&launch.id).await.unwrap();
    assert!(matches!(state, Some(BackendState::Running(_))), "{state:?}");
    drop(open);
    fixture.backend().await.remove(&launch.id).await.unwrap();
}

/// Shows what programs of a sandbox trust, and how they find the proxy.
const TRUST: &str = r#"
{
echo "$SSL_CERT_FILE $NODE_EXTRA_CA_CERTS $REQUESTS_CA_BUNDLE"
tail -n 1 "$SSL_CERT_FILE"
echo "proxy: $HTTPS_PROXY"
echo "for Java:$(head -c 4 "${SSL_CERT_FILE%.pem}.jks" | od -An -tx1)"
(echo x > "$SSL_CERT_FILE") 2> /dev/null && echo changed || echo kept
} > workspace/results.new
mv workspace/results.new workspace/results
sleep 600 & wait"#;

#[tokio::test]
async fn programs_trust_the_authority_of_their_sandbox() {
    let fixture = ProcessFixture::new();
    fixture.set_agent_script(TRUST);
    let backend = ProcessSandboxes::new(config(&fixture, NetworkPolicy::Open)).await;
    let (backend, launch) = (backend.unwrap(), launch("s1"));
    // At the second start the file exists.
    for _start in 0..2 {
        backend.start(&launch).await.unwrap();
        let results = fixture.root(&launch.id).join("workspace/results");
        wait_until("the file is read", || results.exists()).await;
        let text = fs::read_to_string(&results).unwrap();
        let file = fixture.root(&launch.id).join("certificates.pem");
        let file = file.display();
        let expected = format!(
            "{file} {file} {file}\nauthority of s1\nproxy: http://127.0.0.2:26228\nfor Java: fe ed fe ed\nkept\n"
        );
        assert_eq!(text, expected);
        backend.stop(&launch.id).await.unwrap();
        fs::remove_file(&results).unwrap();
    }
    backend.remove(&launch.id).await.unwrap();
}
