//! Decodes UUIDs in every spelling that Python accepts.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Decode, FieldError, FieldErrors, Path};

impl Decode for Uuid {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let parsed = match value {
            Value::String(text) => Self::parse_str(text).map_err(|error| {
                let error = reason(&error, text);
                FieldError::new(
                    "uuid_parsing",
                    format!("Input should be a valid UUID, {error}"),
                )
                .with_context(json!({"error": error}))
            }),
            _ => Err(FieldError::new(
                "uuid_type",
                "UUID input should be a string, bytes or UUID object",
            )),
        };
        parsed.map_err(|fault| errors.push(at, fault, value)).ok()
    }
}

/// The parser's text, which equals pydantic's (it uses the same crate).
fn reason(error: &uuid::Error, _text: &str) -> String {
    error.to_string()
}
