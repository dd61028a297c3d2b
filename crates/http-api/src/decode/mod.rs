//! From JSON, query and path parameters to input types, with **all** errors at once and in the words of `FastAPI`.
//!
//! A type that can be read from a request implements [`Decode`]. Scalars, lists, maps and ids are done here; a model
//! is read member by member with [`Object`], a closed set of words with [`Choice`], alternatives with [`union()`].
//! `serde` is not used for input because it stops at the first error.
//!
//! **Secrets.** A type that is or contains a secret says `const SENSITIVE: bool = true`; reading a sensitive member
//! inside a model that does not say so does not compile. No error item repeats a sensitive value, the object around
//! it, or a member of that object which nobody expected.
//!
//! Knows the wire's vocabulary of faults. Knows nothing of HTTP, of routes or of what a value is for.

mod choice;
mod collection;
mod domain_types;
mod errors;
mod identity;
mod instant;
mod json;
mod json_syntax;
mod object;
mod path;
mod rules;
mod scalar;
mod secret;
mod union;

#[cfg(test)]
mod tests;

use serde_json::Value;

pub use choice::{Choice, ChoiceKind};
pub use collection::JsonObject;
pub use errors::{FieldErrors, FieldError, Flavour};
pub use json::{JsonError, parse as parse_json};
pub use object::Object;
pub use path::Path;
pub use rules::{Rule, bounds, characters, items, pattern};
pub use secret::Secret;
pub use union::{UnionArm, union};

/// A type that can be read from a request.
pub trait Decode: Sized {
    /// Whether a value of this type is, or contains, a secret. Such values are never repeated in an error.
    const SENSITIVE: bool = false;
    /// Whether a repeated query parameter is one value of this type (otherwise the last one counts).
    const LIST: bool = false;

    /// Reads `value`, which stands at `at`. `None` means that at least one error has been noted.
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self>;

    /// The same for a value that nobody else needs: documents are taken over instead of copied.
    fn decode_owned(value: Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        Self::decode(&value, at, errors)
    }
}

/// Reads a whole value. `Err` holds at least one error.
pub fn decode<T: Decode>(value: &Value, at: &Path<'_>) -> Result<T, FieldErrors> {
    let mut errors = FieldErrors::new();
    match T::decode(value, at, &mut errors) {
        Some(decoded) if errors.is_empty() => Ok(decoded),
        _ => Err(errors),
    }
}
