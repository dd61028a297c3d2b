//! Decodes alternatives: the first arm that fits wins. If none fits, the errors of every arm are listed under its name.

use serde_json::Value;

use super::{FieldErrors, Path};

/// One alternative: its name in `loc`, and its decoder.
pub type UnionArm<T> = (
    &'static str,
    fn(&Value, &Path<'_>, &mut FieldErrors) -> Option<T>,
);

/// Decodes the first alternative that fits.
pub fn union<T>(
    value: &Value,
    location: &Path<'_>,
    errors: &mut FieldErrors,
    arms: &[UnionArm<T>],
) -> Option<T> {
    let mut all = FieldErrors::new();
    for (name, read) in arms {
        let mut found = FieldErrors::new();
        match read(value, &location.key(name), &mut found) {
            Some(decoded) if found.is_empty() => return Some(decoded),
            _ => all.append(found),
        }
    }
    errors.append(all);
    None
}
