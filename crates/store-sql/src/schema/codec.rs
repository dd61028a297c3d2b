//! Values in and out of columns. What does not decode is [`StoreError::Corrupt`], never a panic.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::str::FromStr;

use domain::error::StoreError;
use domain::scope::Scope;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::schema::column_types::RawJsonCol;

/// Reads the columns of one kind of row; carries what the error shall name.
#[derive(Clone, Copy)]
pub(crate) struct Decode(pub(crate) &'static str);

impl Decode {
    fn corrupt(self, column: &str, cause: impl Display) -> StoreError {
        StoreError::Corrupt {
            entity: self.0,
            what: format!("{column}: {cause}"),
        }
    }

    /// An id or an enum.
    pub(crate) fn parse<T>(self, column: &str, text: &str) -> Result<T, StoreError>
    where
        T: FromStr,
        T::Err: Display,
    {
        text.parse().map_err(|cause| self.corrupt(column, cause))
    }

    /// A JSON document.
    pub(crate) fn json<T: DeserializeOwned>(
        self,
        column: &str,
        RawJsonCol(text): &RawJsonCol,
    ) -> Result<T, StoreError> {
        // serde's message names a position and a type, and for a wrong enum value the value; none is secret, because
        // what is secret is sealed.
        serde_json::from_str(text).map_err(|cause| self.corrupt(column, cause))
    }
}

/// A JSON document as text. Fails only if a map key is not text.
pub(crate) fn to_json(value: &impl Serialize) -> Result<RawJsonCol, StoreError> {
    let text = serde_json::to_string(value);
    text.map(RawJsonCol)
        .map_err(|cause| StoreError::Other(cause.into()))
}

/// Text of others, as columns can hold it: Postgres takes any character but NUL, so that one is stored as U+FFFD, on both
/// databases. What our own types let through has none.
pub(crate) fn plain(text: impl Into<String>) -> String {
    let text = text.into();
    if text.contains('\0') {
        text.replace('\0', "\u{fffd}")
    } else {
        text
    }
}

/// The owner to filter by, as the column has it.
pub(crate) fn owner(scope: &Scope) -> Option<String> {
    scope.user().map(|user| user.as_str().to_owned())
}

/// Puts what was found into the order that was asked for; an id asked for twice comes twice.
pub(crate) fn in_order<K: Eq + Hash, V: Clone>(
    asked: &[K],
    found: &HashMap<K, V>,
) -> Vec<Option<V>> {
    asked.iter().map(|id| found.get(id).cloned()).collect()
}

/// Databases bound the number of parameters of a statement (`SQLite`: 32766); look-ups by id go in batches of this size.
pub(crate) const IDS_PER_QUERY: usize = 10_000;
