//! JSON bodies: bounded in size and time, then decoded with all errors.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, TRANSFER_ENCODING, UPGRADE,
};
use actix_web::web::{Bytes, BytesMut};
use futures::StreamExt;
use serde_json::{Value, json};

use super::parse_budget::{self, ParsePermit};
use super::request_part::{RequestInput, RequestPart};
use crate::decode::{Decode, ErrorFormat, FieldError, FieldErrors, JsonError, Path};
use crate::problem::Problem;
use crate::state::{RequestLimits, state_of};

/// A JSON body.
#[derive(Debug, Clone)]
pub struct Body<T>(pub T);

impl<T: Decode> RequestPart for Body<T> {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        let bytes = input.read_body(|limits| limits.body).await?;
        Ok(decode_body(input, bytes).await?.map(Self))
    }
}

/// A JSON body that may be missing, or null.
#[derive(Debug, Clone)]
pub struct OptionalBody<T>(pub Option<T>);

impl<T: Decode> RequestPart for OptionalBody<T> {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        let bytes = input.read_body(|limits| limits.body).await?;
        if matches!(bytes.trim_ascii(), b"" | b"null") {
            return Ok(Some(Self(None)));
        }
        let value = decode_body(input, bytes).await?;
        Ok(value.map(|value| Self(Some(value))))
    }
}

/// A JSON body together with the bytes it came from (to compare a repeated request with the first).
#[derive(Debug, Clone)]
pub struct BodyWithBytes<T> {
    /// The input.
    pub value: T,
    /// The body as sent.
    pub bytes: Bytes,
}

impl<T: Decode> RequestPart for BodyWithBytes<T> {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        let bytes = input.read_body(|limits| limits.body).await?;
        let value = decode_body(input, bytes.clone()).await?;
        Ok(value.map(|value| Self { value, bytes }))
    }
}

/// A JSON body from a sandbox, with a higher limit: events may be larger than requests of users.
#[derive(Debug, Clone)]
pub struct WebhookBody<T>(pub T);

impl<T: Decode> RequestPart for WebhookBody<T> {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        let bytes = input.read_body(|limits| limits.webhook_body).await?;
        Ok(decode_body(input, bytes).await?.map(Self))
    }
}

/// A body that the handler validates itself; the content type is ignored.
#[derive(Debug, Clone)]
pub struct RawJson(pub Result<Value, JsonError>);

impl RequestPart for RawJson {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        let bytes = input.read_body(|limits| limits.body).await?;
        let (read, _share) = input.parse(&bytes).await?;
        Ok(Some(Self(read)))
    }
}

/// A body that is read, so that the connection stays usable, and dropped.
#[derive(Debug)]
pub struct DiscardedBody;

impl RequestPart for DiscardedBody {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        input.read_body(|limits| limits.body).await?;
        Ok(Some(Self))
    }
}

impl RequestInput<'_> {
    /// Reads the whole body, up to the limit and until the deadline.
    pub(super) async fn read_body(
        &mut self,
        limit: impl FnOnce(&RequestLimits) -> usize,
    ) -> Result<Bytes, Problem> {
        let limits = &state_of(self.req)?.limits;
        read(self.req, self.payload, limit(limits), limits.body_deadline).await
    }

    /// Parses a body within the memory budget.
    async fn parse(
        &self,
        bytes: &Bytes,
    ) -> Result<(Result<Value, JsonError>, ParsePermit), Problem> {
        parse_budget::parse_document(&state_of(self.req)?.parse_budget, bytes).await
    }
}

async fn read(
    req: &HttpRequest,
    payload: &mut Payload,
    limit: usize,
    deadline: Duration,
) -> Result<Bytes, Problem> {
    let encoding = req
        .headers()
        .get(CONTENT_ENCODING)
        .map(HeaderValue::as_bytes);
    if encoding.is_some_and(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity")) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Compressed bodies are not supported: send the body without Content-Encoding",
        ));
    }
    let announced = req
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large(limit));
    }
    let announced = announced.and_then(|length| usize::try_from(length).ok());
    let announced = announced.or_else(|| is_empty_upgrade(req).then_some(0));
    let whole = tokio::time::timeout(deadline, collect(payload, limit, announced)).await;
    whole.map_err(|_| {
        Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "The body did not arrive in time",
        )
    })?
}

/// Whether a request wants to upgrade and has no body. This service upgrades nothing, so without body headers there is none
/// (RFC 9112, section 6.3), but actix treats everything that follows as one.
fn is_empty_upgrade(req: &HttpRequest) -> bool {
    let headers = req.headers();
    headers.contains_key(UPGRADE) && !headers.contains_key(TRANSFER_ENCODING)
}

/// Stops at the announced length: for an upgrade request, actix passes on everything that follows, without an end.
async fn collect(
    payload: &mut Payload,
    limit: usize,
    announced: Option<usize>,
) -> Result<Bytes, Problem> {
    let announced = announced.unwrap_or(usize::MAX);
    let mut all = BytesMut::new();
    while all.len() < announced
        && let Some(chunk) = payload.next().await
    {
        let chunk = chunk.map_err(|_| Problem::bad_request("The body could not be read"))?;
        let chunk = &chunk[..chunk.len().min(announced - all.len())];
        if all.len() + chunk.len() > limit {
            return Err(too_large(limit));
        }
        all.extend_from_slice(chunk);
    }
    Ok(all.freeze())
}

fn too_large(limit: usize) -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("The body is larger than {limit} bytes"),
    )
}

/// Whether the content type is JSON. Without one, only the legacy operations assume JSON.
pub(super) fn is_json(req: &HttpRequest, error_format: ErrorFormat) -> bool {
    let Some(value) = req.headers().get(CONTENT_TYPE) else {
        return error_format == ErrorFormat::Legacy;
    };
    let Ok(text) = value.to_str() else {
        return false;
    };
    let essence = text
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    match essence.split_once('/') {
        Some(("application", "json")) => true,
        Some((_, subtype)) => subtype.ends_with("+json"),
        None => false,
    }
}

pub(super) async fn decode_body<T: Decode>(
    input: &mut RequestInput<'_>,
    bytes: Bytes,
) -> Result<Option<T>, Problem> {
    let at = Path::body(T::SENSITIVE);
    if bytes.is_empty() {
        missing(&mut input.errors);
        return Ok(None);
    }
    let error_format = input.error_format;
    if !is_json(input.req, error_format) {
        let errors = &mut input.errors;
        // The reference passes the raw text to the model, which then has the wrong type.
        let text = Value::from(String::from_utf8_lossy(&bytes).into_owned());
        if T::decode(&text, &at, errors).is_some() {
            errors.push(&at, FieldError::model_attributes_type(), &text);
        }
        return Ok(None);
    }
    let (read, _share) = input.parse(&bytes).await?;
    let errors = &mut input.errors;
    match read {
        Ok(Value::Null) => missing(errors),
        Ok(value) => return Ok(T::decode(&value, &at, errors)),
        Err(JsonError::Undecodable) if error_format == ErrorFormat::V1 => {
            return Err(Problem::bad_request("There was an error parsing the body"));
        }
        Err(JsonError::Undecodable) => syntax_error(errors, 0, "Not UTF-8, or nested too deeply"),
        Err(JsonError::Syntax { position, message }) => syntax_error(errors, position, message),
    }
    Ok(None)
}

fn missing(errors: &mut FieldErrors) {
    // An absent body contains no secret.
    errors.push(&Path::body(false), FieldError::missing(), &Value::Null);
}

fn syntax_error(errors: &mut FieldErrors, position: usize, message: &str) {
    let fault = FieldError::new("json_invalid", "JSON decode error")
        .with_context(json!({"error": message}));
    // The error repeats nothing of the text, so the location is not secret.
    errors.push(&Path::body(false).index(position), fault, &json!({}));
}
