//! The key in a query: browsers cannot set headers on a socket.

use secrecy::SecretString;
use url::form_urlencoded::parse;

const KEY_PARAM: &str = "session_api_key";

/// The first non-empty key in the query.
pub(super) fn key_in(query: &str) -> Option<SecretString> {
    let found =
        parse(query.as_bytes()).find(|(name, value)| name == KEY_PARAM && !value.is_empty());
    found.map(|(_, value)| SecretString::from(value.into_owned()))
}

/// The path, and the query without keys and otherwise unchanged.
pub(crate) fn without_keys(path: &str, query: &str) -> String {
    let is_key = |part: &&str| parse(part.as_bytes()).any(|(name, _)| name == KEY_PARAM);
    let kept: Vec<&str> = query.split('&').filter(|part| !is_key(part)).collect();
    let kept = kept.join("&");
    if kept.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{kept}")
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn keys_are_found_and_removed_in_any_encoding() {
        let table = [
            ("", None, "/p"),
            ("a=1", None, "/p?a=1"),
            ("session_api_key=k", Some("k"), "/p"),
            ("a=%20&session_api_key=k%2B&b", Some("k+"), "/p?a=%20&b"),
            ("session%5Fapi%5fkey=k", Some("k"), "/p"),
            ("session_api_key=&session_api_key=k", Some("k"), "/p"),
            ("session_api_key=k&session_api_key=l&a", Some("k"), "/p?a"),
            ("session_api_key", None, "/p"),
            ("xsession_api_key=k", None, "/p?xsession_api_key=k"),
        ];
        for (query, key, left) in table {
            let found = key_in(query);
            assert_eq!(
                found.as_ref().map(ExposeSecret::expose_secret),
                key,
                "{query}"
            );
            assert_eq!(without_keys("/p", query), left, "{query}");
        }
    }
}
