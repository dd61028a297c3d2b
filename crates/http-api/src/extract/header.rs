//! Headers that routes take as input.

use actix_web::HttpRequest;
use actix_web::dev::Payload;

use super::Part;
use crate::decode::{Errors, Fault, Flavour, Path, Rule, characters};
use crate::problem::Problem;

const NAME: &str = "Idempotency-Key";

/// `Idempotency-Key`, if the client sent one: 1 to 255 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey(pub Option<String>);

impl Part for IdempotencyKey {
    async fn extract(
        req: &HttpRequest,
        _: &mut Payload,
        _: Flavour,
        errors: &mut Errors,
    ) -> Result<Option<Self>, Problem> {
        let Some(value) = req.headers().get(NAME) else {
            return Ok(Some(Self(None)));
        };
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let visible = text.bytes().all(|b| b.is_ascii_graphic());
        let fault = characters(1..=255).check(&text).or_else(|| {
            (!visible)
                .then(|| Fault::value_error("an idempotency key has visible ASCII characters only"))
        });
        Ok(match fault {
            None => Some(Self(Some(text))),
            Some(fault) => {
                errors.push(&Path::header().key(NAME), fault, &text.into());
                None
            }
        })
    }
}
