//! Safe names of files in an archive.

/// Further characters are cut.
const MAX_NAME_CHARS: usize = 100;

/// Replaces all characters but ASCII letters, digits, `-` and `_` with `_`. Names contain event ids, which agent
/// servers choose, and some programs follow `../` or `C:` when they unpack.
pub(crate) fn safe_name(text: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    text.chars()
        .take(MAX_NAME_CHARS)
        .map(|c| if keep(c) { c } else { '_' })
        .collect()
}
