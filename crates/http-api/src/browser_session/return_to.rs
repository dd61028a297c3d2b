//! Where a browser goes after the login. The address comes from a link, so it must stay on this origin.

use url::Url;

/// Longest address.
const MAX_RETURN_TO_BYTES: usize = 4096;

/// The address if it is an absolute path of this origin, with query and fragment; else `None`.
pub(crate) fn safe_return_to(text: &str) -> Option<&str> {
    let is_path = text.starts_with('/') && !text.starts_with("//");
    // Browsers read `\` as `/`, and drop tabs and line feeds.
    let is_plain = text.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    if !is_path || !is_plain || text.len() > MAX_RETURN_TO_BYTES {
        return None;
    }
    // What a browser makes of it.
    let base = Url::parse("https://own.invalid/login").ok()?;
    let target = base.join(text).ok()?;
    let stays = target.origin() == base.origin() && !target.path().starts_with("//");
    stays.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_this_origin_are_returned_to() {
        for good in [
            "/",
            "/conversations/1?a=b&c=%2F#top",
            "/a//b",
            "/login?returnTo=/",
            "/%5Cevil",
            "/x?u=https://evil.example/",
        ] {
            assert_eq!(safe_return_to(good), Some(good), "{good}");
        }
        let long = format!("/{}", "a".repeat(MAX_RETURN_TO_BYTES));
        for bad in [
            "",
            "x",
            "//evil.example",
            "///evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "/\t/evil.example",
            "/\n/evil.example",
            "\t//evil.example",
            " //evil.example",
            "/ /evil.example",
            "/.//evil.example",
            "/x/..//evil.example",
            "https://evil.example",
            "HTTPS:evil.example",
            "https:/evil.example",
            "javascript:alert(1)",
            "data:text/html,x",
            "/é",
            "/\u{0}",
            long.as_str(),
        ] {
            assert_eq!(safe_return_to(bad), None, "{bad}");
        }
    }
}
