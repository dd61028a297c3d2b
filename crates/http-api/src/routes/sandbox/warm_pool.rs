//! The pool of warm sandboxes, for administrators.

use actix_web::{get, web};

use crate::dto::sandbox::warm_pool::WarmPoolDto;
use crate::extract::{Admin, Application, Call};
use crate::problem::{Detail, Problem};

/// What the pool of warm sandboxes of the process that answers has, as of its last look, and has done.
#[utoipa::path(
    tag = "Administration",
    responses(
        (status = 200, description = "The pool", body = WarmPoolDto),
        (status = 403, description = "The caller is no administrator", body = Detail),
    )
)]
#[get("/api/v1/admin/warm")]
pub(crate) async fn read(
    app: Application,
    Call(_admin, ()): Call<Admin, ()>,
) -> Result<web::Json<WarmPoolDto>, Problem> {
    Ok(web::Json(app.warm_counts().into()))
}
