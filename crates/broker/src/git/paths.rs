//! The paths of git and its large files. All others stay behind, so that a token opens no other page or API of its host.

use domain::git::CloneSource;
use percent_encoding::percent_decode_str;
use url::{Position, Url};

const MAX_PATH_BYTES: usize = 4_096;
const SERVICES: [&str; 2] = ["git-upload-pack", "git-receive-pack"];

/// What a path is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitPath {
    /// Clones, fetches and pushes.
    Repository,
    /// The addresses of large files.
    ListOfLargeFiles,
    /// A large file, or a lock of one.
    LargeFile,
}

/// What a request is for; `None` for a request that git and git-lfs do not send.
pub(super) fn check(method: &str, path: &str, query: &str) -> Option<GitPath> {
    let parts: Vec<&str> = path.split('/').collect();
    let is_fine = path.len() <= MAX_PATH_BYTES
        && query.len() <= MAX_PATH_BYTES
        && parts.iter().all(|part| is_segment(part));
    if !is_fine {
        return None;
    }
    let of_service = |service: &str| query.strip_prefix("service=") == Some(service);
    match (method, parts.as_slice()) {
        // Without a service the host would answer the older protocol, which reads any file.
        ("GET", [_, .., "info", "refs"]) if SERVICES.into_iter().any(of_service) => {
            Some(GitPath::Repository)
        }
        ("POST", [_, .., service]) if query.is_empty() && SERVICES.contains(service) => {
            Some(GitPath::Repository)
        }
        ("POST", [_, .., "info", "lfs", "objects", "batch"]) if query.is_empty() => {
            Some(GitPath::ListOfLargeFiles)
        }
        ("GET" | "POST" | "PUT", parts) => {
            let is_of_large_files = |marks: &[&str]| {
                parts
                    .windows(marks.len())
                    .skip(1)
                    .any(|window| window == marks)
            };
            let is_one = is_of_large_files(&["info", "lfs", "objects"])
                || is_of_large_files(&["info", "lfs", "locks"])
                || is_of_large_files(&["info", "lfs", "verify"])
                || is_of_large_files(&["gitlab-lfs", "objects"]);
            is_one.then_some(GitPath::LargeFile)
        }
        _ => None,
    }
}

/// Whether a part of a path leads nowhere else, also after it is decoded once or twice.
fn is_segment(part: &str) -> bool {
    let is_plain = |text: &str| {
        !text.is_empty()
            && text != "."
            && text != ".."
            && !text
                .chars()
                .any(|c| c.is_control() || c == '/' || c == '\\')
    };
    let once = percent_decode_str(part).decode_utf8_lossy();
    let twice = percent_decode_str(&once).decode_utf8_lossy();
    is_plain(part) && is_plain(&once) && is_plain(&twice)
}

/// The address of a checked path at the host.
pub(super) fn url(base: &Url, path: &str, query: &str) -> Option<Url> {
    let mut text = format!("{}/{path}", base.as_str().trim_end_matches('/'));
    if !query.is_empty() {
        text.push('?');
        text.push_str(query);
    }
    let url: Url = text.parse().ok()?;
    (url[..Position::BeforePath] == base[..Position::BeforePath]).then_some(url)
}

/// The address of the same place as the sandbox sees it; `None` if it is not below the host's base.
pub(super) fn through_service(base: &Url, address: &str, place: &str) -> Option<String> {
    let place: Url = place.parse().ok()?;
    let base = format!("{}/", base.as_str().trim_end_matches('/'));
    let rest = place.as_str().strip_prefix(&base)?;
    Some(format!("{address}/{rest}"))
}

/// The target of a redirect as the sandbox sees it.
pub(super) fn moved(host: &CloneSource, address: &str, to: &str) -> Option<String> {
    let to = host.url.join(to).ok()?;
    through_service(&host.url, address, to.as_str())
}
