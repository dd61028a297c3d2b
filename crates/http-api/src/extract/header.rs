//! Headers that routes take as input.

use actix_web::HttpRequest;

use super::keys::key_text;
use super::request_part::{RequestInput, RequestPart};
use crate::browser_session;
use crate::decode::{Decode, FieldError, Path, characters};
use crate::problem::Problem;

const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// `Idempotency-Key`, if the client sent one: 1 to 255 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey(pub Option<String>);

impl RequestPart for IdempotencyKey {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        let Some(value) = input.req.headers().get(IDEMPOTENCY_KEY) else {
            return Ok(Some(Self(None)));
        };
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let visible = text.bytes().all(|b| b.is_ascii_graphic());
        let fault = characters(1..=255)(&text).or_else(|| {
            (!visible).then(|| {
                FieldError::value_error(
                    "an idempotency key may only contain visible ASCII characters",
                )
            })
        });
        Ok(match fault {
            None => Some(Self(Some(text))),
            Some(fault) => {
                input
                    .errors
                    .push(&Path::header().key(IDEMPOTENCY_KEY), fault, &text.into());
                None
            }
        })
    }
}

/// The header in which a hosted web front end names the organization that it shows.
const ORGANIZATION: &str = "X-Org-Id";

/// The kind of client, where an operation means different things to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientKind {
    /// A web front end that knows organizations: it names one, or has a session instead of a key.
    FrontEnd,
    /// Any other client.
    Other,
}

impl ClientKind {
    /// Decides from the request.
    pub(crate) fn of(req: &HttpRequest) -> Self {
        let has_session = key_text(req).is_none() && browser_session::token_of(req).is_some();
        if has_session || req.headers().contains_key(ORGANIZATION) {
            Self::FrontEnd
        } else {
            Self::Other
        }
    }
}

impl RequestPart for ClientKind {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        Ok(Some(Self::of(input.req)))
    }
}

/// `Last-Event-ID`, if the client sent one: the number of the last event that it received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastEventId(pub Option<u64>);

impl LastEventId {
    /// The name of the header.
    pub const NAME: &'static str = "Last-Event-ID";
}

impl RequestPart for LastEventId {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        let Some(value) = input.req.headers().get(Self::NAME) else {
            return Ok(Some(Self(None)));
        };
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let (header, errors) = (Path::header(), &mut input.errors);
        let number = u64::decode(&text.into(), &header.key(Self::NAME), errors);
        Ok(number.map(|number| Self(Some(number))))
    }
}
