//! Encodes and decodes column values. Invalid values yield [`StoreError::Corrupt`], never a panic.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::str::FromStr;

use domain::error::StoreError;
use domain::user::scope::Scope;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::schema::column_types::RawJsonCol;

/// Decodes the columns of one kind of row; holds the entity name for errors.
#[derive(Clone, Copy)]
pub(crate) struct EntityDecoder(pub(crate) &'static str);

impl EntityDecoder {
    fn corrupt(self, column: &str, cause: impl Display) -> StoreError {
        StoreError::Corrupt {
            entity: self.0,
            what: format!("{column}: {cause}"),
        }
    }

    /// Parses an id or an enum value.
    pub(crate) fn parse<T>(self, column: &str, text: &str) -> Result<T, StoreError>
    where
        T: FromStr,
        T::Err: Display,
    {
        text.parse().map_err(|cause| self.corrupt(column, cause))
    }

    /// Parses a JSON document.
    pub(crate) fn json<T: DeserializeOwned>(
        self,
        column: &str,
        RawJsonCol(text): &RawJsonCol,
    ) -> Result<T, StoreError> {
        // serde's message may quote a wrong enum value. Stored documents hold no plain secrets.
        serde_json::from_str(text).map_err(|cause| self.corrupt(column, cause))
    }
}

/// Serializes a JSON document. Fails only if a map key is not text.
pub(crate) fn to_json(value: &impl Serialize) -> Result<RawJsonCol, StoreError> {
    let text = serde_json::to_string(value);
    text.map(RawJsonCol)
        .map_err(|cause| StoreError::Other(cause.into()))
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
    scope.user().map(|user| user.as_str().to_owned())
}

/// Returns the found values in the order of the requested ids. A repeated id repeats its value.
pub(crate) fn in_order<K: Eq + Hash, V: Clone>(ids: &[K], found: &HashMap<K, V>) -> Vec<Option<V>> {
    ids.iter().map(|id| found.get(id).cloned()).collect()
}

/// Batch size of look-ups by id. Databases limit the number of parameters of a statement (`SQLite`: 32766).
pub(crate) const IDS_PER_QUERY: usize = 10_000;
