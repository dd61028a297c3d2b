//! Confines file paths in requests to agent servers without isolation. Such a server reads and writes whatever its operating
//! system user may, so paths are restricted to the sandbox's own. Containers are isolated anyway.
//!
//! Releases 1.34 and 1.58 name a path in the query, older ones in the path after the route. Bodies contain none.

use application::AppError;
use application::gateway::AgentRoute;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use url::form_urlencoded::{Serializer, parse};

use super::path_owner::is_below;
use super::query;
use crate::extract::Application;

const FILE_ROUTES: [&str; 2] = ["/api/file", "/api/git"];
/// Routes with a path as their suffix.
const PATH_SUFFIX_ROUTES: [&str; 4] = [
    "/api/file/upload/",
    "/api/file/download/",
    "/api/git/changes/",
    "/api/git/diff/",
];
const PATH_PARAM: &str = "path";
/// Characters that are escaped in the path of a URL.
const PATH_ESCAPES: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Path and query for the agent server, without keys and without paths that lead out of the sandbox.
pub(super) async fn target(
    app: &Application,
    agent_route: &AgentRoute,
    path: &str,
    query: &str,
) -> Result<String, AppError> {
    let names_files = FILE_ROUTES.iter().any(|family| is_below(path, family));
    if !names_files || !app.gateway.confines_paths() {
        return Ok(query::without_keys(path, query));
    }
    let mut path = path.to_owned();
    if let Some((route, asked)) = split_path_suffix(&path) {
        let confined = app.gateway.path(agent_route, &asked).await?;
        path = format!("{route}{}", utf8_percent_encode(&confined, PATH_ESCAPES));
    }
    if !parse(query.as_bytes()).any(|(name, _)| name == PATH_PARAM) {
        return Ok(query::without_keys(&path, query));
    }
    let mut confined = Serializer::new(String::new());
    for (name, value) in parse(query.as_bytes()) {
        if name == PATH_PARAM {
            let value = app.gateway.path(agent_route, &value).await?;
            confined.append_pair(&name, &value);
        } else {
            confined.append_pair(&name, &value);
        }
    }
    Ok(query::without_keys(&path, &confined.finish()))
}

/// The route, and its path suffix as the agent server reads it.
fn split_path_suffix(path: &str) -> Option<(&'static str, String)> {
    PATH_SUFFIX_ROUTES.iter().find_map(|route| {
        let rest = path.strip_prefix(route)?;
        let asked = percent_decode_str(rest).decode_utf8_lossy();
        Some((*route, asked.into_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_suffixes_are_decoded_like_in_the_agent_server() {
        for (path, expected) in [
            ("/api/file/upload//workspace/x", Some("/workspace/x")),
            ("/api/file/download/%2Fetc%2Fpasswd", Some("/etc/passwd")),
            ("/api/git/changes/a+b%20c", Some("a+b c")),
            ("/api/git/diff/", Some("")),
            ("/api/file/upload", None),
            ("/api/file/download-trajectory/x", None),
        ] {
            let found = split_path_suffix(path).map(|(_, asked)| asked);
            assert_eq!(found.as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn encoded_path_suffixes_decode_to_the_same_path() {
        let path = "/a b/ü%2F?x#[1]+{}/y";
        let written = format!("/api/git/diff/{}", utf8_percent_encode(path, PATH_ESCAPES));
        assert!(written.parse::<actix_web::http::Uri>().is_ok(), "{written}");
        let (_, read) = split_path_suffix(&written).expect("a path");
        assert_eq!(read, path);
    }
}
