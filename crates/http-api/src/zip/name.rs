//! Names of files in an archive that somebody else unpacks.

/// Longest part of a name that comes from outside.
const LONGEST: usize = 100;

/// Letters, digits, `-` and `_` of a text, everything else as `_`: event ids are whatever an agent server says, and some
/// programs unpack `../` or `C:` as they find it.
pub(crate) fn safe(text: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    text.chars()
        .take(LONGEST)
        .map(|c| if keep(c) { c } else { '_' })
        .collect()
}
