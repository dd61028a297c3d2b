//! What a request leaves in the audit log, as parts of it.

use super::request_part::{RequestInput, RequestPart};
use crate::audit::{AuditOrigin, Unaudited};
use crate::problem::Problem;

impl RequestPart for Unaudited {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        Ok(Some(Self::of(input.req)))
    }
}

impl RequestPart for AuditOrigin {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        Ok(Some(Self::of(input.req)))
    }
}
