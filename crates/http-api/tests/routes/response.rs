//! Responses of the service, as tests read them.

use std::pin::Pin;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::http::header::HeaderMap;
use serde_json::{Value, json};

/// A response.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    /// Whether it is marked as replayed.
    pub(crate) is_replay: bool,
    pub(crate) text: String,
    pub(crate) headers: HeaderMap,
}

impl TestResponse {
    pub(crate) async fn of<B: MessageBody>(response: HttpResponse<B>) -> Self {
        let status = response.status().as_u16();
        let content_type = response.headers().get("content-type");
        let content_type = content_type
            .map_or("", |value| value.to_str().unwrap())
            .to_owned();
        let is_replay = response.headers().contains_key("idempotency-replayed");
        let headers = response.headers().clone();
        let bytes = actix_web::body::to_bytes(response.into_body()).await;
        let text =
            String::from_utf8(bytes.unwrap_or_else(|_| panic!("no whole body")).to_vec()).unwrap();
        Self {
            status,
            content_type,
            is_replay,
            text,
            headers,
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }

    /// Compares status and text at once, so that a failure shows both.
    #[track_caller]
    pub(crate) fn is(&self, status: u16, expected: &Value) {
        assert_eq!(
            (self.status, self.text.as_str()),
            (status, expected.to_string().as_str())
        );
    }

    /// `{"detail": "<text>"}`
    #[track_caller]
    pub(crate) fn refuses(&self, status: u16, detail: &str) {
        self.is(status, &json!({"detail": detail}));
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()
    }
}

/// A streamed response.
pub(crate) struct StreamedResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: BoxBody,
}

impl StreamedResponse {
    /// The next chunk, within a generous timeout; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<String> {
        let next = std::future::poll_fn(|cx| Pin::new(&mut self.body).poll_next(cx));
        let next = tokio::time::timeout(Duration::from_secs(30), next).await;
        let bytes = next.expect("something comes, or the end")?;
        let bytes = bytes.unwrap_or_else(|_| panic!("no whole body"));
        Some(String::from_utf8(bytes.to_vec()).unwrap())
    }

    /// Whether the stream breaks off within a generous timeout.
    pub(crate) async fn breaks_off(mut self) -> bool {
        let next = std::future::poll_fn(|cx| Pin::new(&mut self.body).poll_next(cx));
        let next = tokio::time::timeout(Duration::from_secs(30), next).await;
        matches!(next, Ok(Some(Err(_))))
    }

    /// The whole body of a finite stream.
    pub(crate) async fn whole(mut self) -> Value {
        let mut text = String::new();
        while let Some(more) = self.next().await {
            text.push_str(&more);
        }
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}"))
    }
}
