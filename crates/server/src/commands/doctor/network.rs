//! Connections that checks of `doctor` try.

use std::time::Duration;

use tokio::net::TcpStream;
use url::Url;

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Whether the URL's host accepts a connection from this machine; the error says why not.
pub(super) async fn can_connect(url: &Url) -> Result<(), String> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or(443);
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port))).await;
    connected
        .map_err(|_| format!("no answer in {} s", CONNECT_TIMEOUT.as_secs()))?
        .map_err(|error| error.to_string())?;
    Ok(())
}
