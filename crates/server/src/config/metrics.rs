//! Section `metrics`.

use secrecy::{ExposeSecret, SecretString};

use super::reader::Reader;

/// The key that `/metrics` needs, if it needs one.
pub(super) fn read(reader: &Reader<'_>) -> Option<SecretString> {
    let key = reader.secret("metrics.key");
    let is_usable = |key: &SecretString| {
        let text = key.expose_secret();
        // It is sent as a header value, and a longer one is refused before it is looked at.
        (8..=256).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if key.as_ref().is_some_and(|key| !is_usable(key)) {
        reader.problem("metrics.key", "must be 8 to 256 visible ASCII characters");
    }
    key
}
