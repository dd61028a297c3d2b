//! Names of files in an archive that somebody else unpacks.

/// Longest part of a name that comes from outside.
const MAX_NAME_CHARS: usize = 100;

/// Letters, digits, `-` and `_` of a text, everything else as `_`: event ids are whatever an agent server says, and some
/// programs unpack `../` or `C:` as they find it.
pub(crate) fn safe_name(text: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    text.chars()
        .take(MAX_NAME_CHARS)
        .map(|c| if keep(c) { c } else { '_' })
        .collect()
}
