//! Counts large responses until they are sent ([`crate::unsent_bytes`]).

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::ServiceResponse;
use actix_web::{HttpRequest, ResponseError as _};
use domain::audit::AuditActor;

use super::body::with_guard;
use super::connection_slot::ChunkedBody;
use crate::audit::actor_of;
use crate::extract::ClientAddress;
use crate::rate_limit::client_network;
use crate::state::HttpState;
use crate::unsent_bytes::{MIN_COUNTED_BYTES, UnsentOwner};

/// The response, counted until it is sent; or a refusal, if too much is unsent already and the request changed nothing.
pub(super) fn account(
    state: &HttpState,
    answer: ServiceResponse<BoxBody>,
) -> ServiceResponse<BoxBody> {
    let is_large =
        |size| matches!(size, BodySize::Sized(bytes) if bytes > MIN_COUNTED_BYTES as u64);
    if !is_large(answer.response().body().size()) {
        return answer;
    }
    let (request, response) = answer.into_parts();
    let (response, body) = response.into_parts();
    let response = match body.try_into_bytes() {
        // Streams are bounded where they are written.
        Err(body) => response.set_body(body),
        Ok(bytes) => {
            let (caller, unsent) = (owner_of(&request), &state.unsent);
            let share = if request.method().is_safe() {
                unsent.try_take(caller, bytes.len())
            } else {
                Ok(unsent.take(caller, bytes.len()))
            };
            match share {
                Ok(share) => {
                    let body = with_guard(BoxBody::new(ChunkedBody::of(bytes)), share);
                    response.set_body(body)
                }
                Err(problem) => problem.error_response(),
            }
        }
    };
    ServiceResponse::new(request, response)
}

fn owner_of(request: &HttpRequest) -> UnsentOwner {
    match actor_of(request) {
        (AuditActor::Unknown, _) => {
            UnsentOwner::Unidentified(ClientAddress::of(request).address.map(client_network))
        }
        (known, _) => UnsentOwner::Known(known),
    }
}
