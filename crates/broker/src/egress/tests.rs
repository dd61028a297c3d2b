//! Attacks on the proxy, and what passes it.

mod limits;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use domain::error::BoxError;
use domain::host_rule::parse_host;
use domain::id::SandboxId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client_hello::tests::hello;
use super::destination::{Destination, RuleSet};
use super::tunnel::{self, ClientBegin, TunnelEnd};
use super::{EgressApprovals, EgressCounts, EgressProxy, EgressRules};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A proxy that serves one connection, and the other end of it.
async fn connected(proxy: &Arc<EgressProxy>, tasks: &mut JoinSet<()>) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let client = client.await.unwrap();
    let (served, _) = listener.accept().await.unwrap();
    let proxy = Arc::clone(proxy);
    let sandbox = SandboxId::parse("sandbox-1").unwrap();
    tasks.spawn(async move { proxy.serve(&sandbox, served).await });
    client
}

fn proxy(rules: &[&str]) -> Arc<EgressProxy> {
    let rules = EgressRules::parse(rules.iter().copied()).unwrap();
    Arc::new(EgressProxy::new(rules))
}

/// The head and text of the response to these bytes.
async fn exchange(proxy: &Arc<EgressProxy>, request: &[u8]) -> String {
    let mut tasks = JoinSet::new();
    let mut client = connected(proxy, &mut tasks).await;
    // The proxy may refuse the request before it has all of it.
    let _ = client.write_all(request).await;
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while !text.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = timeout(TEST_TIMEOUT, client.read(&mut buffer))
            .await
            .unwrap();
        match read {
            Ok(count) if count > 0 => text.extend_from_slice(&buffer[..count]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Counts connections, which must not come.
async fn forbidden_host(tasks: &mut JoinSet<()>) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tasks.spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (port, count)
}

#[tokio::test]
async fn attacks_are_refused_before_a_connection() {
    let mut tasks = JoinSet::new();
    let (port, connections) = forbidden_host(&mut tasks).await;
    let localhost = format!("localhost:{port}");
    let proxy = proxy(&[
        "example.org",
        "*.example.net",
        "example.com:8443",
        &localhost,
    ]);
    let attacks = [
        ("CONNECT evil.example:443", 403),
        ("CONNECT example.org.evil.example:443", 403),
        ("CONNECT evilexample.org:443", 403),
        ("CONNECT sub.example.org:443", 403),
        ("CONNECT example.net:443", 403),
        ("CONNECT evilexample.net:443", 403),
        ("CONNECT example.net.evil.example:443", 403),
        ("CONNECT example.org:22", 403),
        ("CONNECT example.org:80", 403),
        ("CONNECT example.com:443", 403),
        ("CONNECT xn--exmple-cua.org:443", 403),
        ("CONNECT 169.254.169.254:443", 403),
        ("CONNECT 100.100.100.200:443", 403),
        ("CONNECT 10.0.0.1:443", 403),
        ("CONNECT 1.1.1.1:443", 403),
        ("CONNECT [2606:4700:4700::1111]:443", 403),
        ("CONNECT 127.0.0.1:PORT", 403),
        ("CONNECT [::1]:PORT", 403),
        ("CONNECT [::ffff:127.0.0.1]:PORT", 403),
        ("CONNECT 2130706433:PORT", 403),
        ("CONNECT 0x7f.1:PORT", 403),
        ("CONNECT 0.0.0.0:PORT", 403),
        // A listed name with an address of this machine, as after a change of its records (rebinding).
        ("CONNECT localhost:PORT", 403),
        ("CONNECT LOCALHOST.:PORT", 403),
        ("CONNECT example.org", 400),
        ("CONNECT user@example.org:443", 400),
        ("CONNECT example.org:0", 400),
        ("CONNECT example.org:99999", 400),
        ("GET http://evil.example/", 403),
        ("GET http://metadata.google.internal/", 403),
        ("GET http://example.org:8080/", 403),
        ("GET http://example.org:443/", 403),
        ("GET http://localhost:PORT/", 403),
        ("GET http://127.0.0.1:PORT/", 403),
        ("GET http://user:password@example.org/", 400),
        ("GET https://example.org/", 400),
        ("GET ftp://example.org/", 400),
        ("GET /", 400),
    ];
    for (line, status) in attacks {
        let line = line.replace("PORT", &port.to_string());
        let request = format!("{line} HTTP/1.1\r\nHost: example.org\r\n\r\n");
        let response = exchange(&proxy, request.as_bytes()).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(response.starts_with(&expected), "{line}: {response}");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn malformed_heads_are_refused_before_a_connection() {
    let mut tasks = JoinSet::new();
    let (port, connections) = forbidden_host(&mut tasks).await;
    let proxy = proxy(&[&format!("127.0.0.1:{port}")]);
    let line = format!("POST http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: h\r\n");
    let long = format!("X: {}\r\n", "x".repeat(64 * 1024));
    let many = "X: y\r\n".repeat(200);
    for (headers, statuses) in [
        ("Content-Length: 1\r\nContent-Length: 2\r\n", &["400"][..]),
        ("Content-Length: +1\r\n", &["400"]),
        ("Content-Length: 1, 2\r\n", &["400"]),
        ("Transfer-Encoding: gzip\r\n", &["400"]),
        ("Transfer-Encoding: chunked, gzip\r\n", &["400"]),
        ("Content-Length : 1\r\n", &["400"]),
        ("X: a\0b\r\n", &["400"]),
        (&long, &["431"]),
        (&many, &["431"]),
    ] {
        let request = format!("{line}{headers}\r\n");
        let response = exchange(&proxy, request.as_bytes()).await;
        let status = response.get(9..12).unwrap_or_default();
        assert!(statuses.contains(&status), "{headers:.60}: {response}");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

/// An owner who approved some hosts, and what the owner was asked.
#[derive(Debug, Default)]
struct Owner {
    approved: Vec<String>,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl EgressApprovals for Owner {
    async fn is_approved(&self, _: &SandboxId, host: &str, port: u16) -> Result<bool, BoxError> {
        let wanted = format!("{host}:{port}");
        let is_approved = self.approved.contains(&wanted);
        self.asked.lock().unwrap().push(wanted);
        Ok(is_approved)
    }
}

#[tokio::test]
async fn owners_are_asked_for_public_hosts_only() {
    let mut tasks = JoinSet::new();
    let (port, connections) = forbidden_host(&mut tasks).await;
    let approved = ["gone.invalid:443", "gone.invalid:80"].map(str::to_owned);
    let owner = Arc::new(Owner {
        approved: [&approved[..], &[format!("localhost:{port}")]].concat(),
        asked: Mutex::default(),
    });
    let rules = EgressRules::parse(["example.org"]).unwrap();
    let proxy = EgressProxy::new(rules).with_approvals(Arc::clone(&owner) as _);
    let proxy = Arc::new(proxy);
    for (line, status, asked) in [
        ("CONNECT Evil.Example.:443", 403, Some("evil.example:443")),
        ("GET http://evil.example/", 403, Some("evil.example:80")),
        ("CONNECT example.org:22", 403, Some("example.org:22")),
        ("CONNECT 1.1.1.1:443", 403, Some("1.1.1.1:443")),
        // Approved, and not to be resolved.
        ("CONNECT gone.invalid:443", 502, Some("gone.invalid:443")),
        ("GET http://gone.invalid/", 502, Some("gone.invalid:80")),
        // An approval opens no private address.
        ("CONNECT localhost:PORT", 403, Some("localhost:PORT")),
        ("CONNECT 127.0.0.1:PORT", 403, None),
        ("CONNECT [::1]:PORT", 403, None),
        ("CONNECT 2130706433:PORT", 403, None),
        ("CONNECT 10.0.0.1:443", 403, None),
        ("CONNECT 169.254.169.254:80", 403, None),
        ("CONNECT a..b:443", 400, None),
        ("CONNECT evil.example", 400, None),
    ] {
        let with_port = |text: &str| text.replace("PORT", &port.to_string());
        let request = format!("{} HTTP/1.1\r\nHost: x\r\n\r\n", with_port(line));
        let response = exchange(&proxy, request.as_bytes()).await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status}")),
            "{line}: {response}"
        );
        let all = std::mem::take(&mut *owner.asked.lock().unwrap());
        assert_eq!(all, Vec::from_iter(asked.map(with_port)), "{line}");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

/// A host that answers one request, and returns what it got.
async fn host_that_answers(response: &'static [u8]) -> (u16, JoinSet<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut host = JoinSet::new();
    host.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut got).await.unwrap(), 0);
        }
        stream.write_all(response).await.unwrap();
        String::from_utf8(got).unwrap()
    });
    (port, host)
}

#[tokio::test]
async fn a_plain_request_is_forwarded_without_headers_of_the_connection() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: x-hop\r\nX-Hop: 1\r\nX-End: 2\r\n\r\nok";
    let (port, mut host) = host_that_answers(answer).await;
    let proxy = proxy(&[&format!("127.0.0.1:{port}")]);
    let request = format!(
        "POST http://127.0.0.1:{port}/a?b=c HTTP/1.1\r\nHost: internal.example\r\nProxy-Authorization: Basic c2VjcmV0\r\n\
         Connection: X-Mine\r\nX-Mine: 1\r\nUpgrade: websocket\r\nX-Kept: 2\r\nContent-Length: 40\r\n\
         Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    );
    let response = exchange(&proxy, request.as_bytes())
        .await
        .to_ascii_lowercase();
    assert!(response.starts_with("http/1.1 200 ok"), "{response}");
    assert!(
        response.contains("x-end: 2") && !response.contains("x-hop"),
        "{response}"
    );
    let got = host
        .join_next()
        .await
        .unwrap()
        .unwrap()
        .to_ascii_lowercase();
    assert!(got.starts_with("post /a?b=c http/1.1\r\n"), "{got}");
    assert!(
        got.contains(&format!("host: 127.0.0.1:{port}\r\n")) && got.contains("x-kept: 2"),
        "{got}"
    );
    for absent in [
        "internal.example",
        "proxy-",
        "x-mine",
        "upgrade",
        "content-length",
    ] {
        assert!(!got.contains(absent), "{absent}: {got}");
    }
    let expected = EgressCounts {
        allowed: 1,
        ..EgressCounts::default()
    };
    assert_eq!(proxy.counts(), expected);
}

#[tokio::test]
async fn a_tunnel_to_a_listed_port_passes_any_bytes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let proxy = proxy(&[&format!("127.0.0.1:{port}")]);
    let mut tasks = JoinSet::new();
    let mut client = connected(&proxy, &mut tasks).await;
    let request = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\nearly");
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut host, _) = listener.accept().await.unwrap();
    let mut got = [0; 5];
    host.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"early");
    host.write_all(b"answer").await.unwrap();
    drop(host);
    let mut all = String::new();
    client.read_to_string(&mut all).await.unwrap();
    assert!(
        all.starts_with("HTTP/1.1 200") && all.ends_with("\r\n\r\nanswer"),
        "{all}"
    );
}

#[tokio::test]
async fn an_answer_that_is_not_read_is_not_collected() {
    const CHUNK: usize = 1 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let proxy = proxy(&[&format!("127.0.0.1:{port}")]);
    let mut tasks = JoinSet::new();
    let mut client = connected(&proxy, &mut tasks).await;
    let request = format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut host, _) = listener.accept().await.unwrap();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1_u64 << 30);
    host.write_all(head.as_bytes()).await.unwrap();
    let chunk = vec![0; CHUNK];
    let mut sent = 0;
    // The buffers of the kernel take some megabytes.
    while let Ok(result) = timeout(Duration::from_millis(500), host.write_all(&chunk)).await {
        result.unwrap();
        sent += 1;
        assert!(sent < 256, "{sent} MiB were taken");
    }
    // The connection to the host ends with its client.
    drop(client);
    let ended = async { while host.write_all(&chunk).await.is_ok() {} };
    timeout(TEST_TIMEOUT, ended).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_end_closes_the_connection() {
    let proxy = proxy(&["example.org"]);
    let mut tasks = JoinSet::new();
    let mut client = connected(&proxy, &mut tasks).await;
    client
        .write_all(b"CONNECT example.org:443 HTTP/1.1\r\nX")
        .await
        .unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert!(!rest.starts_with(b"HTTP/1.1 200"));
}

/// What the host gets from a tunnel whose client begins with these bytes.
async fn tunneled(host: &str, port: u16, bytes: &[u8]) -> (TunnelEnd, Vec<u8>) {
    let rules = EgressRules::parse([host, &format!("{host}:{port}")]).unwrap();
    let destination = Destination::new(&RuleSet::new(rules), None, (host, port), 443).unwrap();
    let (mut client, mut served) = duplex(64 * 1024);
    let (connected, mut host) = duplex(64 * 1024);
    client.write_all(bytes).await.unwrap();
    client.shutdown().await.unwrap();
    host.shutdown().await.unwrap();
    let begin = if destination.must_be_tls() {
        Some(ClientBegin::read(&mut served).await.unwrap())
    } else {
        None
    };
    let ended = tunnel::run(served, connected, &destination, begin).await;
    let ended = ended.unwrap();
    let mut got = Vec::new();
    host.read_to_end(&mut got).await.unwrap();
    (ended, got)
}

#[tokio::test]
async fn tls_must_ask_for_the_host_of_the_tunnel() {
    for (name, is_refused) in [
        ("example.org", false),
        ("evil.example", true),
        ("www.example.org", true),
        ("example.org.evil.example", true),
        // Without a server name.
        ("192.0.2.1", true),
    ] {
        let sent = hello(name);
        let (ended, got) = tunneled("example.org", 443, &sent).await;
        assert_eq!(matches!(ended, TunnelEnd::Refused(_)), is_refused, "{name}");
        assert_eq!(got, if is_refused { vec![] } else { sent }, "{name}");
    }
    for bytes in [
        &b"SSH-2.0-x\r\n"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &[22, 3, 1, 0, 0],
    ] {
        let (ended, got) = tunneled("example.org", 443, bytes).await;
        assert!(matches!(ended, TunnelEnd::Refused(_)) && got.is_empty());
    }
    let (ended, got) = tunneled("example.org", 22, b"SSH-2.0-x\r\n").await;
    assert_eq!(
        (ended, &got[..]),
        (TunnelEnd::Closed, &b"SSH-2.0-x\r\n"[..])
    );
}

#[test]
fn rules_are_hosts_with_ports_and_presets() {
    for valid in [
        "example.org",
        "*.example.org",
        "Example.ORG.",
        "example.org:22",
        "192.0.2.1",
        "[::1]:80",
        "git",
        "packages",
    ] {
        assert!(EgressRules::parse([valid]).is_ok(), "{valid}");
    }
    for invalid in [
        "",
        "*",
        "*.",
        "https://example.org",
        "example.org/x",
        "a b",
        "example.org:0",
        "example.org:x",
        "*.192.0.2.1",
        "a..b",
        "**.b",
        "a.*.b",
    ] {
        assert!(EgressRules::parse([invalid]).is_err(), "{invalid}");
    }
    let rules = EgressRules::parse(["packages", "git", "münchen.example"]).unwrap();
    for host in [
        "pypi.org",
        "objects.githubusercontent.com",
        "xn--mnchen-3ya.example",
    ] {
        assert!(rules.allow(&parse_host(host).unwrap(), 443, 443), "{host}");
    }
}
