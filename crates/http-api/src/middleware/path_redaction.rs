//! Removes signatures from paths in the log.

use std::borrow::Cow;

use crate::addresses::SIGNED;

/// Length of a signature: a hash in hexadecimal.
const SIGNATURE_HEX_CHARS: usize = 64;

/// The path without signatures: a signed path gives access to a port, such as an editor with a terminal.
/// `/s/{sandbox}/{name}/{signature}/x` becomes `/s/{sandbox}/{name}/…/x`. Everything that looks like a signature is removed
/// at any position, because the rest of the address may be wrong.
pub(super) fn redacted(path: &str) -> Cow<'_, str> {
    let is_signed = path.split('/').nth(1) == Some(SIGNED);
    // Most paths are too short for a signature.
    if !is_signed && path.len() < SIGNATURE_HEX_CHARS {
        return Cow::Borrowed(path);
    }
    let is_hidden =
        |at: usize, part: &str| (is_signed && at == 4 && !part.is_empty()) || is_signature(part);
    let parts = path.split('/').enumerate();
    let parts: Vec<_> = parts
        .map(|(at, part)| if is_hidden(at, part) { "…" } else { part })
        .collect();
    Cow::Owned(parts.join("/"))
}

fn is_signature(part: &str) -> bool {
    part.len() == SIGNATURE_HEX_CHARS && part.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_not_shown() {
        let signature = "0a".repeat(32);
        for (path, expected) in [
            ("/s/a/W/SIG/", "/s/a/W/…/"),
            ("/s/a/W/SIG", "/s/a/W/…"),
            ("/s/a/W/SIG/x/y", "/s/a/W/…/x/y"),
            ("/s/a/W/wrong%61/x", "/s/a/W/…/x"),
            ("/s/a/W", "/s/a/W"),
            ("/s/a/W/", "/s/a/W/"),
            // A wrong path with a valid signature.
            ("//s/a/W/SIG/x", "//s/a/W/…/x"),
            ("/agents/s/a/W/SIG/x", "/agents/s/a/W/…/x"),
            ("/api/v1/users/me", "/api/v1/users/me"),
            ("/sa/b/c/d/e", "/sa/b/c/d/e"),
        ] {
            assert_eq!(
                redacted(&path.replace("SIG", &signature)),
                expected,
                "{path}"
            );
        }
    }
}
