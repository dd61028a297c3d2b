//! The pool of warm sandboxes, for administrators.

use actix_web::{get, web};

use crate::dto::sandbox::warm_pool::WarmPoolDto;
use crate::extract::{Admin, ApiCall, Application};
use crate::problem::Problem;

/// Loads the state and the counters of the warm pool of the process that answers, as of its last check.
#[utoipa::path(tag = "Administration", responses((status = 200, body = WarmPoolDto)))]
#[get("/api/v1/admin/warm")]
pub(crate) async fn read(
    app: Application,
    ApiCall(_admin, ()): ApiCall<Admin, ()>,
) -> Result<web::Json<WarmPoolDto>, Problem> {
    Ok(web::Json(app.warm_counts().into()))
}
