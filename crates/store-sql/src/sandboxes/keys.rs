//! Session keys and callback tokens of sandboxes, by their hashes.

use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::id::SandboxId;
use domain::sandbox::{DesiredState, NewSessionKey, Sandbox};
use domain::user::identity::KeyHash;
use domain::user::scope::Scope;

use super::rows::SandboxRow;
use super::{load, save};
use crate::database::connection::AnyConnection;
use crate::error::TransactionError;
use crate::schema::sandboxes;

/// The sandbox with this session key.
pub(crate) fn by_session_key(
    conn: &mut AnyConnection,
    hash: &str,
) -> Result<Option<Sandbox>, TransactionError> {
    let row = sandboxes::table
        .filter(sandboxes::key_hash.eq(hash))
        .select(SandboxRow::as_select())
        .first(conn)
        .optional()?;
    Ok(row.map(Sandbox::from))
}

/// The sandbox with this callback token.
pub(crate) fn by_callback_token(
    conn: &mut AnyConnection,
    hash: &str,
) -> Result<Option<Sandbox>, TransactionError> {
    let row = sandboxes::table
        .filter(sandboxes::callback_token_hash.eq(hash))
        .select(SandboxRow::as_select())
        .first(conn)
        .optional()?;
    Ok(row.map(Sandbox::from))
}

/// Replaces the session key if the intent is to run the sandbox and `old` is still its key. Runs in the caller's transaction.
pub(crate) fn replace(
    conn: &mut AnyConnection,
    id: &SandboxId,
    old: &KeyHash,
    new: &NewSessionKey,
    at: Timestamp,
) -> Result<Option<Sandbox>, TransactionError> {
    let stored = load(conn, &Scope::System, id.as_str())?;
    let Some(mut sandbox) = stored
        .filter(|sandbox| sandbox.desired == DesiredState::Running && sandbox.key_hash == *old)
    else {
        return Ok(None);
    };
    sandbox.replace_session_key(new, at);
    save(conn, &sandbox)?;
    Ok(Some(sandbox))
}
