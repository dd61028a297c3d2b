//! A request to any URL, for the command `doctor`.

use std::time::Duration;

use domain::error::chain;
use hyper::Method;
use hyper::header::{DATE, HeaderMap};
use outbound_http::{CaCertificates, ClientOptions, HttpClient};
use url::Url;

/// Response of a probed URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResponse {
    /// HTTP status.
    pub status: u16,
    /// The header `Date`: the server's clock.
    pub date: Option<String>,
}

/// Sends one GET request and follows no redirect. The error is a text for the operator, with all causes. It omits the URL,
/// which the caller prints.
pub async fn probe(url: Url, deadline: Duration) -> Result<ProbeResponse, String> {
    let client = HttpClient::new(ClientOptions {
        authorities: CaCertificates::for_url(&url),
        guard: None,
        connect_timeout: deadline,
        idle_timeout: deadline,
        max_idle_per_host: 0,
    });
    let client = client.map_err(|error| chain(&error))?;
    let exchange = client.send(Method::GET, &url, HeaderMap::new(), Vec::new());
    let response = tokio::time::timeout(deadline, exchange).await;
    let response = response.map_err(|_| format!("no response within {deadline:?}"))?;
    let response = response.map_err(|error| chain(&error))?;
    let date = response.headers().get(DATE);
    let date = date.and_then(|value| value.to_str().ok());
    Ok(ProbeResponse {
        status: response.status().as_u16(),
        date: date.map(str::to_owned),
    })
}
