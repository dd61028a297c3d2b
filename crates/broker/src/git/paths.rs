//! The paths of git and its large files. All others stay behind, so that a token opens no other page or API of its host.

use domain::git::CloneSource;
use percent_encoding::percent_decode_str;
use url::{Position, Url};

const MAX_PATH_BYTES: usize = 4_096;
const FETCH: &str = "git-upload-pack";
const PUSH: &str = "git-receive-pack";

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitOperation {
    /// A clone or a fetch, or what comes before a push.
    Read,
    /// The beginning of a push: the host names its references.
    PushBegin,
    /// The changed references of a push, and its objects.
    Push,
    /// The addresses of large files.
    ListOfLargeFiles,
    /// A large file, or the locks of large files.
    ReadLargeFile,
    WriteLargeFile,
}

/// A request that git or git-lfs sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRequest {
    pub(super) operation: GitOperation,
    repository: String,
}

impl GitRequest {
    /// Reads method, path below the host's base and query; `None` for a request that git and git-lfs do not send.
    pub fn parse(method: &str, path: &str, query: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        let is_fine = path.len() <= MAX_PATH_BYTES
            && query.len() <= MAX_PATH_BYTES
            && parts.iter().all(|part| is_segment(part));
        if !is_fine {
            return None;
        }
        let (operation, length) = operation(method, &parts, query)?;
        let repository = parts[..length].join("/");
        let repository = repository.strip_suffix(".git").unwrap_or(&repository);
        Some(Self {
            operation,
            repository: repository.to_owned(),
        })
    }

    /// The path of the repository below the host's base, as it was sent, without `.git`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Whether it sends the changes of a push.
    pub fn is_push(&self) -> bool {
        self.operation == GitOperation::Push
    }
}

/// What a request is for, and how many parts of its path name the repository.
fn operation(method: &str, parts: &[&str], query: &str) -> Option<(GitOperation, usize)> {
    match (method, parts) {
        // Without a service the host would answer the older protocol, which reads any file.
        ("GET", [repository @ .., "info", "refs"]) => match query.strip_prefix("service=")? {
            FETCH => Some((GitOperation::Read, repository.len())),
            PUSH => Some((GitOperation::PushBegin, repository.len())),
            _ => None,
        },
        ("POST", [repository @ .., FETCH]) if query.is_empty() => {
            Some((GitOperation::Read, repository.len()))
        }
        ("POST", [repository @ .., PUSH]) if query.is_empty() => {
            Some((GitOperation::Push, repository.len()))
        }
        ("POST", [repository @ .., "info", "lfs", "objects", "batch"]) if query.is_empty() => {
            Some((GitOperation::ListOfLargeFiles, repository.len()))
        }
        ("GET" | "POST" | "PUT", parts) => {
            let at = |marks: &[&str]| {
                let mut windows = parts.windows(marks.len());
                windows.position(|window| window == marks)
            };
            let length = at(&["info", "lfs", "objects"])
                .or_else(|| at(&["info", "lfs", "locks"]))
                .or_else(|| at(&["info", "lfs", "verify"]))
                .or_else(|| at(&["gitlab-lfs", "objects"]))?;
            let operation = match method {
                "GET" => GitOperation::ReadLargeFile,
                _ => GitOperation::WriteLargeFile,
            };
            Some((operation, length))
        }
        _ => None,
    }
    .filter(|(_, length)| *length > 0)
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
