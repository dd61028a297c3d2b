//! Requests to a provider: each with a deadline, a bounded answer and no redirects.

use std::time::Duration;

use domain::error::BoxError;
use domain::user::single_sign_on::ProviderError;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};
use outbound_http::{HttpClient, RequestSlots, read_body};
use serde::de::DeserializeOwned;
use url::Url;

pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest duration of one request, with its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// Concurrent requests in all, and to one provider.
const MAX_CONCURRENT_REQUESTS: usize = 32;
const MAX_CONCURRENT_REQUESTS_PER_PROVIDER: usize = 16;

/// A client for providers. Clones share the connections.
#[derive(Debug, Clone)]
pub(crate) struct ProviderHttp {
    client: HttpClient,
    slots: RequestSlots,
}

pub(crate) fn unavailable(what: &'static str, source: Option<BoxError>) -> ProviderError {
    ProviderError::Unavailable { what, source }
}

impl ProviderHttp {
    pub(crate) fn new(client: HttpClient) -> Self {
        let slots = RequestSlots::new(
            MAX_CONCURRENT_REQUESTS,
            MAX_CONCURRENT_REQUESTS_PER_PROVIDER,
        );
        Self { client, slots }
    }

    /// Reads a JSON document.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        url: &Url,
        mut headers: HeaderMap,
        what: &'static str,
    ) -> Result<T, ProviderError> {
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let request = (Method::GET, headers, Bytes::new());
        let (status, body) = self.exchange(url, request, what).await?;
        if status != StatusCode::OK {
            let status = format!("the status is {status}");
            return Err(unavailable(what, Some(status.into())));
        }
        serde_json::from_slice(&body).map_err(|error| unavailable(what, Some(error.into())))
    }

    /// Sends a form. Returns the status and the body.
    pub(crate) async fn post(
        &self,
        url: &Url,
        mut headers: HeaderMap,
        form: String,
        what: &'static str,
    ) -> Result<(StatusCode, Bytes), ProviderError> {
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, kind);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        self.exchange(url, (Method::POST, headers, form.into()), what)
            .await
    }

    async fn exchange(
        &self,
        url: &Url,
        (method, headers, body): (Method, HeaderMap, Bytes),
        what: &'static str,
    ) -> Result<(StatusCode, Bytes), ProviderError> {
        let exchange = async {
            let slot = self.slots.take(url.origin().ascii_serialization()).await;
            let _slot = slot.map_err(|error| unavailable(what, Some(error.into())))?;
            let sent = self.client.send(method, url, headers, body).await;
            let answer = sent.map_err(|error| unavailable(what, Some(error.into())))?;
            let status = answer.status();
            let body = read_body(answer.into_body(), MAX_ANSWER_BYTES).await;
            let body = body.map_err(|error| unavailable(what, Some(error.into())))?;
            Ok((status, body))
        };
        let in_time = tokio::time::timeout(REQUEST_TIMEOUT, exchange).await;
        in_time.unwrap_or_else(|elapsed| Err(unavailable(what, Some(elapsed.into()))))
    }
}
