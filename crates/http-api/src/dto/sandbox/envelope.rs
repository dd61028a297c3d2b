//! A request to an agent server inside another request.

use std::collections::BTreeMap;
use std::time::Duration;

use actix_web::http::Method;
use actix_web::web::Bytes;
use secrecy::SecretString;
use serde_json::Value;

use crate::decode::{Sensitive, model};
use crate::dto::enums::choice;
use crate::forwarding::Envelope;

/// Longest time that the answer may take, in seconds.
const MAX_TIMEOUT_SECONDS: f64 = 60.0;
const MIN_TIMEOUT_SECONDS: f64 = 1.0;
const CONTENT_TYPE: &str = "content-type";

choice!(pub(crate) Enum EnvelopeMethod, "The method of a request to an agent server." {
    Get = "GET",
    Head = "HEAD",
    Post = "POST",
    Put = "PUT",
    Patch = "PATCH",
    Delete = "DELETE",
});

/// A request to an agent server.
#[model(body = CloudProxyRequest)]
pub(crate) struct EnvelopeDto {
    /// The part of the `conversation_url` before `/api/conversations`.
    host: String,
    /// The method.
    method: EnvelopeMethod,
    /// Path and query. The path is one of the agent server's that begins with `/api/`.
    path: String,
    /// The headers; `X-Session-API-Key` names the sandbox.
    #[schema(value_type = BTreeMap<String, String>, write_only)]
    headers: Option<BTreeMap<String, SecretString>>,
    /// The JSON body; `null` for none.
    #[schema(value_type = Option<Value>)]
    body: Option<Sensitive<Value>>,
    /// Seconds until the answer is cut, at most 60.
    #[schema(default = 60)]
    timeout_seconds: Option<f64>,
}

impl EnvelopeDto {
    pub(crate) fn into_envelope(self) -> Envelope {
        let mut headers: Vec<_> = self.headers.unwrap_or_default().into_iter().collect();
        let body = self.body.map(|Sensitive(body)| body.to_string());
        let has_type = headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(CONTENT_TYPE));
        if body.is_some() && !has_type {
            headers.push((CONTENT_TYPE.to_owned(), "application/json".into()));
        }
        let seconds = self.timeout_seconds.unwrap_or(MAX_TIMEOUT_SECONDS);
        let seconds = seconds.clamp(MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS);
        Envelope {
            host: self.host,
            method: self.method.method(),
            target: self.path,
            headers,
            body: body.map(Bytes::from).unwrap_or_default(),
            timeout: Duration::from_secs_f64(seconds),
        }
    }
}

impl EnvelopeMethod {
    fn method(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Head => Method::HEAD,
            Self::Post => Method::POST,
            Self::Put => Method::PUT,
            Self::Patch => Method::PATCH,
            Self::Delete => Method::DELETE,
        }
    }
}
