//! Safe names of files in an archive.

/// Longest part of a name from outside.
const MAX_NAME_CHARS: usize = 100;

/// Keeps letters, digits, `-` and `_` of a text, and replaces all else with `_`. Agent servers choose event ids, and some
/// programs unpack `../` or `C:` literally.
pub(crate) fn safe_name(text: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    text.chars()
        .take(MAX_NAME_CHARS)
        .map(|c| if keep(c) { c } else { '_' })
        .collect()
}
