//! The configuration that web front ends load first.

use actix_web::{get, web};

use crate::dto::configuration::web_client::WebClientDto;
use crate::extract::{Anonymous, ApiCall, State};

/// Loads the configuration of web front ends. It needs no key and concerns no user.
#[utoipa::path(tag = "Config", security(()), responses((status = 200, body = WebClientDto)))]
#[get("/api/v1/web-client/config")]
pub(crate) async fn config(
    state: State,
    ApiCall(_anyone, ()): ApiCall<Anonymous>,
) -> web::Json<WebClientDto> {
    web::Json(state.web_client.clone())
}
