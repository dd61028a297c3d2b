//! Secrets in a server's URL: query parameters with a secret name. The rest keeps its spelling.

use std::borrow::Cow;

use super::super::secret::MASK;

/// Whether the URL contains a user name or a password. Judged from the text, so that no parser's interpretation is
/// missed.
pub fn has_credentials(url: &str) -> bool {
    let rest = url.split_once("//").map_or(url, |(_, rest)| rest);
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    rest[..end].contains('@')
}

/// The parts before the query, the query, and the fragment with `#`.
fn parts(url: &str) -> (&str, Option<&str>, &str) {
    let (head, fragment) = url.split_at(url.find('#').unwrap_or(url.len()));
    match head.split_once('?') {
        Some((before, query)) => (before, Some(query), fragment),
        None => (head, None, fragment),
    }
}

fn is_secret(pair: &str) -> bool {
    let name = url::form_urlencoded::parse(pair.as_bytes()).next();
    name.is_some_and(|(name, value)| is_secret_name(&name) && !value.is_empty())
}

fn is_mask(pair: &str) -> bool {
    let value = url::form_urlencoded::parse(pair.as_bytes()).next();
    is_secret(pair) && value.is_some_and(|(_, value)| value == MASK)
}

/// Rewrites each pair of the query with `each`, which gets its position; `None` removes it.
fn rewrite<'a>(url: &'a str, each: impl Fn(usize, &'a str) -> Option<Cow<'a, str>>) -> String {
    let (before, query, fragment) = parts(url);
    let pairs = query.into_iter().flat_map(|query| query.split('&'));
    let pairs: Vec<_> = pairs
        .enumerate()
        .filter_map(|(at, pair)| each(at, pair))
        .collect();
    let mark = if pairs.is_empty() { "" } else { "?" };
    format!("{before}{mark}{}{fragment}", pairs.join("&"))
}

/// The URL with masked secrets.
pub(super) fn masked(url: &str) -> String {
    rewrite(url, |_, pair| {
        let name = pair.split('=').next().unwrap_or_default();
        Some(if is_secret(pair) {
            format!("{name}={MASK}").into()
        } else {
            pair.into()
        })
    })
}

/// Whether both URLs differ in nothing but secrets.
pub(super) fn is_same(one: &str, two: &str) -> bool {
    one == two || masked(one) == masked(two)
}

/// Replaces masks by the values at the same positions of the same server's URL; masks without one are removed.
pub(super) fn unmasked(url: &str, before: Option<&str>) -> String {
    let pairs = |url| {
        parts(url)
            .1
            .into_iter()
            .flat_map(|query: &str| query.split('&'))
    };
    if !pairs(url).any(is_mask) {
        return url.to_owned();
    }
    let before = before.filter(|before| is_same(before, url));
    let kept: Vec<&str> = before.into_iter().flat_map(pairs).collect();
    rewrite(url, |at, pair| {
        if is_mask(pair) {
            kept.get(at).map(|kept| (*kept).to_owned().into())
        } else {
            Some(pair.into())
        }
    })
}

/// Keys that name a secret anywhere.
pub(super) fn is_secret_name(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    [
        "key",
        "token",
        "secret",
        "password",
        "authorization",
        "credential",
    ]
    .iter()
    .any(|word| key.contains(word))
        && !matches!(
            key.as_str(),
            "header_name" | "token_url" | "token_endpoint" | "token_type"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_seen_in_any_spelling() {
        for url in ["https://u:p@h/", "https://u@h", "wss://@h?x", "//u@h"] {
            assert!(has_credentials(url), "{url}");
        }
        for url in ["https://h/@x", "https://h?mail=a@b", "https://h#@", "h"] {
            assert!(!has_credentials(url), "{url}");
        }
    }

    #[test]
    fn only_secret_parameters_are_masked() {
        let url = "https://h/p?api%5Fkey=s&page=2&token=&&access_token=t%20u#f";
        let shown = format!("https://h/p?api%5Fkey={MASK}&page=2&token=&&access_token={MASK}#f");
        assert_eq!(masked(url), shown);
        assert_eq!(unmasked(&shown, Some(url)), url);
        assert_eq!(unmasked(&shown.replace('*', "%2A"), Some(url)), url);
        assert_eq!(unmasked(&shown, None), "https://h/p?page=2&token=&#f");
        for plain in ["https://h", "https://h?", "https://h?a=1", "", "?&"] {
            assert_eq!(unmasked(plain, None), plain);
        }
    }
}
