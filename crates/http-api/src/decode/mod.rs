//! Decodes JSON, query and path parameters into input types. Reports **all** errors together, with `FastAPI`'s texts.
//!
//! Input types implement [`Decode`]. This module has scalars, lists, maps and ids. [`model`] generates the decoder of a
//! struct or of alternatives, and the macro `dto::enums::choice` that of a closed set of words. `serde` is not used for
//! input because it stops at the first error.
//!
//! **Secrets.** A type that is or contains a secret has `SENSITIVE = true`. [`model`] derives it from the members. A
//! hand-written model that reads a sensitive member and does not set it does not compile. No error quotes a sensitive value, the object
//! around it, or an unknown member of that object.
//!
//! Knows the wire's error vocabulary. Knows nothing of HTTP, routes or the meaning of values.

mod choice;
mod collection;
mod domain_types;
mod errors;
mod json;
mod json_syntax;
mod object;
mod path;
mod rules;
mod scalar;
mod secret;
mod timestamps;
mod union;

#[cfg(test)]
mod tests;

use serde_json::Value;

pub use choice::{Choice, ChoiceKind};
pub use collection::JsonObject;
pub use domain::patch::Patch;
pub use errors::{ErrorFormat, FieldError, FieldErrors};
pub use http_api_derive::model;
pub use json::{JsonError, parse as parse_json};
pub use object::Object;
pub use path::Path;
pub use rules::{bounds, characters, items, pattern, refusal};
pub use scalar::SaturatedInt;
pub use secret::Sensitive;
pub use union::{UnionArm, union};

/// A type that can be read from a request.
pub trait Decode: Sized {
    /// Whether a value of this type is or contains a secret. Errors never quote such values.
    const SENSITIVE: bool = false;
    /// Whether a repeated query parameter is one value of this type (otherwise the last one counts).
    const LIST: bool = false;

    /// Decodes `value`, located at `at`. `None` means that at least one error was added.
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self>;
}

/// A type whose values have at most one error.
pub trait DecodeScalar: Sized {
    /// Whether a value of this type is a secret.
    const SENSITIVE: bool = false;

    /// Decodes `value`, or returns its error.
    fn parse(value: &Value) -> Result<Self, FieldError>;
}

impl<T: DecodeScalar> Decode for T {
    const SENSITIVE: bool = <T as DecodeScalar>::SENSITIVE;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let parsed = T::parse(value);
        parsed.map_err(|fault| errors.push(at, fault, value)).ok()
    }
}

/// The members of a model, which another model can contain (`#[decode(flatten)]`). [`model`] implements it.
pub trait DecodeFields: Decode {
    /// Reads the members of an object that is part of `Model`.
    fn decode_fields<Model: Decode>(object: &mut Object<'_, Model>) -> Option<Self>;
}

/// Decodes a whole value. `Err` contains at least one error.
pub fn decode<T: Decode>(value: &Value, at: &Path<'_>) -> Result<T, FieldErrors> {
    let mut errors = FieldErrors::new();
    match T::decode(value, at, &mut errors) {
        Some(decoded) if errors.is_empty() => Ok(decoded),
        _ => Err(errors),
    }
}
