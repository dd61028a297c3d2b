//! The caps of running sandboxes.

use diesel::prelude::*;
use domain::error::{ReachedCap, StoreError};
use domain::id::UserId;
use domain::sandbox::{DesiredState, SandboxCaps, SandboxStatus};

use crate::database::connection::{AnyBackend, AnyConnection};
use crate::error::TransactionError;
use crate::schema::sandboxes;

/// Returns an error if one more running sandbox of this user would exceed a cap.
pub(super) fn check_caps(
    conn: &mut AnyConnection,
    user: &UserId,
    caps: SandboxCaps,
) -> Result<(), TransactionError> {
    let counted = || {
        sandboxes::table
            .into_boxed::<AnyBackend>()
            .filter(sandboxes::desired.eq(DesiredState::Running.as_str()))
            .filter(sandboxes::status.eq_any([
                SandboxStatus::Starting.as_str(),
                SandboxStatus::Running.as_str(),
            ]))
    };
    let of_user: i64 = counted()
        .filter(sandboxes::owner.eq(user.as_str()))
        .count()
        .get_result(conn)?;
    if of_user >= i64::from(caps.per_user) {
        return Err(StoreError::CapReached(ReachedCap::PerUser(caps.per_user)).into());
    }
    let overall: i64 = counted().count().get_result(conn)?;
    if overall >= i64::from(caps.overall) {
        return Err(StoreError::CapReached(ReachedCap::Overall(caps.overall)).into());
    }
    Ok(())
}
