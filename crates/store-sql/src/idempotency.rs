//! `IdempotencyRepository`, and its reads and writes within transactions of other repositories.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::coordination::idempotency::{
    IdempotencyCheck, IdempotencyRepository, IdempotentRequest, IdempotentResponse,
    MAX_RESPONSES_PER_USER,
};
use domain::error::StoreError;

use crate::database::connection::AnyConnection;
use crate::database::pool::JobMode;
use crate::error::TransactionError;
use crate::schema::codec::row_limit;
use crate::schema::column_types::TimestampCol;
use crate::schema::idempotency_keys::{self as keys, table};
use crate::store::SqlStore;
use crate::users::activity::check_active_owner;

/// Looks up an earlier request with the same key. The transaction that executes the request calls this first. Of two concurrent
/// requests, one is retried and finds the response of the other.
pub(crate) fn check(
    conn: &mut AnyConnection,
    request: &IdempotentRequest,
) -> Result<IdempotencyCheck, TransactionError> {
    let stored: Option<(String, String)> = table
        .find((request.owner.as_str(), request.key.as_str()))
        .filter(keys::given_at.ge(TimestampCol(request.since)))
        .select((keys::fingerprint, keys::answer))
        .first(conn)
        .optional()?;
    Ok(match stored {
        None => IdempotencyCheck::New,
        Some((fingerprint, response)) if fingerprint == request.fingerprint => {
            IdempotencyCheck::Replay(response)
        }
        Some(_) => IdempotencyCheck::Mismatch,
    })
}

/// Maximum rows of one statement.
const MAX_ROWS_PER_STATEMENT: i64 = 500;

/// Stores a response, replaces an expired one, and deletes the oldest responses beyond `MAX_RESPONSES_PER_USER`.
pub(crate) fn store_response(
    conn: &mut AnyConnection,
    response: &IdempotentResponse,
) -> Result<(), TransactionError> {
    let request = &response.request;
    let id = (request.owner.as_str(), request.key.as_str());
    diesel::delete(table.find(id)).execute(conn)?;
    diesel::insert_into(table)
        .values((
            keys::owner.eq(id.0),
            keys::key.eq(id.1),
            keys::fingerprint.eq(&request.fingerprint),
            keys::answer.eq(&response.response),
            keys::given_at.eq(TimestampCol(response.at)),
        ))
        .execute(conn)?;
    let surplus: Vec<String> = table
        .filter(keys::owner.eq(id.0))
        .order((keys::given_at.desc(), keys::key.desc()))
        .offset(row_limit(MAX_RESPONSES_PER_USER))
        .limit(MAX_ROWS_PER_STATEMENT)
        .select(keys::key)
        .load(conn)?;
    if !surplus.is_empty() {
        let oldest = table
            .filter(keys::owner.eq(id.0))
            .filter(keys::key.eq_any(surplus));
        diesel::delete(oldest).execute(conn)?;
    }
    Ok(())
}

#[async_trait]
impl IdempotencyRepository for SqlStore {
    async fn look_up(&self, request: &IdempotentRequest) -> Result<IdempotencyCheck, StoreError> {
        let jobs = self.db.for_owner(&request.owner);
        let request = request.clone();
        jobs.run(JobMode::Read, move |conn| check(conn, &request))
            .await
    }

    async fn store_response(
        &self,
        response: &IdempotentResponse,
    ) -> Result<IdempotencyCheck, StoreError> {
        let jobs = self.db.for_owner(&response.request.owner);
        let response = response.clone();
        jobs.run(JobMode::Write, move |conn| {
            let checked = check(conn, &response.request)?;
            if checked == IdempotencyCheck::New {
                check_active_owner(conn, &response.request.owner)?;
                store_response(conn, &response)?;
            }
            Ok(checked)
        })
        .await
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let rows = ("idempotency_keys", "owner, key", "given_at");
        self.prune_rows(rows, before, limit).await
    }
}
