//! Encodes values for statements.

use std::collections::HashMap;
use std::hash::Hash;

use domain::error::StoreError;
use domain::user::scope::Scope;
use serde::Serialize;

use crate::error::TransactionError;

/// Serializes a JSON document. Fails only if a map key is not text.
pub(crate) fn to_json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|cause| StoreError::Other(cause.into()))
}

/// Replaces NUL by U+FFFD in text from outside, on both databases, because Postgres rejects NUL. Ids exclude NUL already.
pub(crate) fn replace_nul(text: impl Into<String>) -> String {
    let text = text.into();
    if text.contains('\0') {
        text.replace('\0', "\u{fffd}")
    } else {
        text
    }
}

/// The owner to filter by, as a column value. `None` for the service.
pub(crate) fn owner_filter(scope: &Scope) -> Option<String> {
    scope.owner().map(|owner| owner.as_str().to_owned())
}

/// A `LIMIT`, or another number of rows or bytes.
pub(crate) fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Batch size of look-ups by id. Databases limit the number of parameters of a statement (`SQLite`: 32766).
pub(crate) const IDS_PER_QUERY: usize = 10_000;

/// Loads the values of these ids in batches, and returns them in the order of the ids. A repeated id repeats its value.
pub(crate) fn find_in_order<K: Eq + Hash, V: Clone>(
    ids: &[K],
    id_of: impl Fn(&V) -> K,
    mut load: impl FnMut(&[K]) -> Result<Vec<V>, TransactionError>,
) -> Result<Vec<Option<V>>, TransactionError> {
    let mut found = HashMap::new();
    for batch in ids.chunks(IDS_PER_QUERY) {
        found.extend(load(batch)?.into_iter().map(|value| (id_of(&value), value)));
    }
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}
