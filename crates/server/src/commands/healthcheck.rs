//! The `healthcheck` command: requests `/ready` of the running service. Made for container images, which contain no
//! HTTP client.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::config::{HttpSettings, reachable};

/// Longer than the service's own checks take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_RESPONSE_BYTES: u64 = 64 * 1024;

/// Succeeds if `/ready` at the configured address answers 200.
pub(crate) async fn check(http: &HttpSettings) -> anyhow::Result<()> {
    if http.bind.port() == 0 {
        bail!("http.bind has port 0, so the service's port is unknown: configure a port");
    }
    let url = reachable(http.bind);
    let response = tokio::time::timeout(REQUEST_TIMEOUT, fetch(url.authority()))
        .await
        .with_context(|| {
            format!(
                "{url}ready did not respond within {} s",
                REQUEST_TIMEOUT.as_secs()
            )
        })?
        .with_context(|| format!("cannot reach {url}ready; is the service running?"))?;
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    if head.split_whitespace().nth(1) == Some("200") {
        return Ok(());
    }
    let status = head.lines().next().unwrap_or_default();
    bail!("the service is not ready: {url}ready answered {status} {body}")
}

async fn fetch(authority: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(authority).await?;
    let request = format!("GET /ready HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream
        .take(MAX_RESPONSE_BYTES)
        .read_to_end(&mut response)
        .await?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::compose::BACKENDS;
    use crate::config::Config;

    fn http(bind: &str) -> HttpSettings {
        let variables = [
            ("HOME".into(), "/home/someone".into()),
            ("WORKSPACE_HTTP__BIND".into(), bind.into()),
        ];
        Config::load(BACKENDS, None, &variables).unwrap().http
    }

    /// A service that answers one request with this response.
    async fn serve_once(response: &'static str) -> HttpSettings {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let listener = listener.into_std().unwrap();
            listener.set_nonblocking(false).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let read = std::io::Read::read(&mut stream, &mut request).unwrap();
            assert!(request[..read].starts_with(b"GET /ready HTTP/1.1\r\n"));
            std::io::Write::write_all(&mut stream, response.as_bytes()).unwrap();
        });
        http(&address.to_string())
    }

    #[tokio::test]
    async fn only_status_200_is_ready() {
        let ready = serve_once("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\"OK\"").await;
        check(&ready).await.unwrap();
        let refusing = "HTTP/1.1 503 Service Unavailable\r\n\r\n{\"detail\":\"Not ready: store\"}";
        let error = check(&serve_once(refusing).await).await.unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("503") && error.contains("Not ready: store"),
            "{error}"
        );
        assert!(check(&serve_once("").await).await.is_err());
    }

    #[tokio::test]
    async fn an_unreachable_service_is_reported() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let error = format!("{:#}", check(&http(&address)).await.unwrap_err());
        assert!(error.contains("is the service running?"), "{error}");
        let error = format!("{:#}", check(&http("127.0.0.1:0")).await.unwrap_err());
        assert!(error.contains("http.bind"), "{error}");
    }
}
