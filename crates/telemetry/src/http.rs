//! Requests to the collector.

use std::time::Duration;

use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use outbound_http::{CaCertificates, ClientOptions, HttpClient, read_body};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::{Config, Error};

/// Timeouts of the connection and of the whole request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Size up to which responses are read. Their content is ignored.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

const AGENT_NAME: &str = concat!("agent-workspace/", env!("CARGO_PKG_VERSION"));

/// Sends batches to the collector.
#[derive(Debug)]
pub(crate) struct CollectorClient {
    client: HttpClient,
    url: Url,
    /// Values are marked sensitive, which hides them from `Debug`.
    headers: HeaderMap,
}

impl CollectorClient {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let mut url = config.endpoint.clone();
        url.path_segments_mut()
            .map_err(|()| {
                Error::Endpoint("the URL must be http://HOST or https://HOST".to_owned())
            })?
            .pop_if_empty()
            .extend(["v1", "traces"]);
        let authorities = CaCertificates::for_url(&url);
        if url.scheme() == "https" && authorities.is_empty() {
            return Err(Error::Endpoint(
                "this machine has no certificate authorities, so https cannot be verified: install them (on Debian, the \
                 package ca-certificates)"
                    .to_owned(),
            ));
        }
        let client = HttpClient::new(ClientOptions {
            authorities,
            guard: None,
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: CONNECT_TIMEOUT,
            // Connections are not reused, because no task drives them between two batches.
            max_idle_per_host: 0,
        });
        let client = client.map_err(|error| Error::Endpoint(error.to_string()))?;
        Ok(Self {
            client,
            url,
            headers: headers(config),
        })
    }

    /// Sends a batch. The error is for the log.
    pub(crate) async fn send(&self, body: Vec<u8>) -> Result<(), String> {
        let exchange = tokio::time::timeout(REQUEST_TIMEOUT, self.exchange(body)).await;
        exchange.unwrap_or_else(|_| {
            Err(format!(
                "no response within {} s",
                REQUEST_TIMEOUT.as_secs()
            ))
        })
    }

    async fn exchange(&self, body: Vec<u8>) -> Result<(), String> {
        let headers = self.headers.clone();
        let response = self.client.send(Method::POST, &self.url, headers, body);
        let response = response.await.map_err(|error| chain(&error))?;
        let status = response.status();
        // Read the body to its end and ignore it.
        let body = read_body(response.into_body(), MAX_RESPONSE_BYTES).await;
        if !status.is_success() {
            return Err(format!("the collector responded with {status}"));
        }
        body.map(|_| ())
            .map_err(|_| "the response is incomplete or too large".to_owned())
    }
}

/// A header `NAME=VALUE` of every request. Its value does not show in `Debug`. `None` if it is not a valid HTTP header.
#[must_use]
pub fn parse_header(text: &SecretString) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = text.expose_secret().split_once('=')?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
    let mut value = HeaderValue::from_str(value.trim()).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

fn headers(config: &Config) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT_NAME));
    for (name, value) in &config.headers {
        headers.append(name, value.clone());
    }
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/x-protobuf"),
    );
    headers
}

fn chain(error: &dyn std::error::Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
