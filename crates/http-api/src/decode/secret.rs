//! Decodes values that no error quotes.

use std::fmt;

use secrecy::SecretString;
use serde_json::Value;

use super::scalar::text_of;
use super::{Decode, DecodeScalar, FieldError, FieldErrors, Path};

impl DecodeScalar for SecretString {
    const SENSITIVE: bool = true;

    fn parse(value: &Value) -> Result<Self, FieldError> {
        text_of(value).map(Self::from)
    }
}

/// Makes any type sensitive, for members that contain a secret and are not plain text (a map of environment variables).
/// `Debug` redacts it.
#[derive(Clone, PartialEq, Eq)]
pub struct Sensitive<T>(pub T);

impl<T> fmt::Debug for Sensitive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sensitive([redacted])")
    }
}

impl<T: Decode> Decode for Sensitive<T> {
    const SENSITIVE: bool = true;
    const LIST: bool = T::LIST;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        // No error inside may quote the value: decode separately, and keep only location, type and message.
        let mut inside = FieldErrors::new();
        let decoded = T::decode(value, at, &mut inside);
        inside.forget_inputs();
        errors.append(inside);
        decoded.map(Self)
    }
}
