//! Rewrites file paths in requests to agent servers: what clients call `/workspace` is the workspace of every sandbox, and the
//! path after a route, which clients of older agent servers send, becomes the query that newer ones take.
//!
//! An agent server without isolation reads and writes whatever its operating system user may, so there the paths are
//! confined to the sandbox's own. Bodies are not read.

use application::AppError;
use application::gateway::AgentRoute;
use percent_encoding::percent_decode_str;
use url::form_urlencoded::{Serializer, parse};

use super::path_owner::is_below;
use super::query;
use crate::extract::Application;

const FILE_ROUTES: [&str; 2] = ["/api/file", "/api/git"];
/// Routes that older agent servers take with a path as their suffix.
const PATH_SUFFIX_ROUTES: [&str; 4] = [
    "/api/file/upload/",
    "/api/file/download/",
    "/api/git/changes/",
    "/api/git/diff/",
];
const PATH_PARAM: &str = "path";

/// Path and query for the agent server, without keys and without paths that lead out of the sandbox.
pub(super) async fn target(
    app: &Application,
    agent_route: &AgentRoute,
    path: &str,
    query: &str,
) -> Result<String, AppError> {
    let has_path_param = || parse(query.as_bytes()).any(|(name, _)| name == PATH_PARAM);
    let suffix = split_path_suffix(path).filter(|(_, asked)| !asked.is_empty());
    let names_files = FILE_ROUTES.iter().any(|family| is_below(path, family));
    if !names_files || (suffix.is_none() && !has_path_param()) {
        return Ok(query::without_keys(path, query));
    }
    let mut rewritten = Serializer::new(String::new());
    for (name, value) in parse(query.as_bytes()) {
        if name != PATH_PARAM {
            rewritten.append_pair(&name, &value);
        } else if suffix.is_none() {
            let value = app.gateway.path(agent_route, &value).await?;
            rewritten.append_pair(&name, &value);
        }
    }
    let Some((route, asked)) = suffix else {
        return Ok(query::without_keys(path, &rewritten.finish()));
    };
    let value = app.gateway.path(agent_route, &asked).await?;
    rewritten.append_pair(PATH_PARAM, &value);
    let route = route.trim_end_matches('/');
    Ok(query::without_keys(route, &rewritten.finish()))
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
}
