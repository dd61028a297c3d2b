//! Documents whose members are not the service's own.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A JSON object of the agent's, e.g. its settings. It may hold secrets: its `Debug` shows none of its values.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Document(pub Map<String, Value>);

impl Document {
    /// A member; `null` if there is none.
    pub fn member(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
