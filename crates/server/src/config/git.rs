//! Section `git`.

use std::path::Path;
use std::time::Duration;

use git_hosting::{AllowedHost, Authorities, PrivateHosts};

use super::reader::Reader;

/// Largest file of certificate authorities, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Calls of git providers.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    /// Hosts that may be called beside public ones.
    pub(crate) private_hosts: PrivateHosts,
    /// Certificate authorities beside the system's.
    pub(crate) authorities: Authorities,
    /// Whether a token is tried out before it is stored.
    pub(crate) verify_tokens: bool,
    /// How long an answer may take, over all the requests that it needs.
    pub(crate) timeout: Duration,
}

impl Git {
    pub(super) fn read(reader: &Reader<'_>) -> Self {
        Self {
            private_hosts: private_hosts(reader),
            authorities: authorities(reader).unwrap_or_default(),
            verify_tokens: reader.switch("git.verify_tokens"),
            timeout: reader.duration("git.timeout"),
        }
    }
}

fn private_hosts(reader: &Reader<'_>) -> PrivateHosts {
    let key = "git.allow_private_hosts";
    let listed = reader.list(key);
    match listed.as_slice() {
        [] => PrivateHosts::Refused,
        // What people write in a variable.
        [one] if one == "false" => PrivateHosts::Refused,
        [one] if one == "*" || one == "true" => PrivateHosts::Allowed,
        entries => {
            let read: Option<Vec<AllowedHost>> =
                entries.iter().map(|entry| entry.parse().ok()).collect();
            if read.is_none() {
                let what = "must hold host names (without scheme and port) and networks such as 10.0.0.0/8, or \"*\" alone";
                reader.problem(key, what);
            }
            PrivateHosts::Listed(read.unwrap_or_default())
        }
    }
}

fn authorities(reader: &Reader<'_>) -> Option<Authorities> {
    let key = "git.ca_file";
    let path = reader.optional_path(key)?;
    let refused = |why: &str| {
        reader.problem(key, &format!("names {}, which {why}", path.display()));
    };
    match read_bounded(&path) {
        Ok(text) => match Authorities::from_pem(&text) {
            Ok(authorities) => Some(authorities),
            Err(why) => {
                refused(why);
                None
            }
        },
        Err(error) => {
            refused(&format!("cannot be read: {error}"));
            None
        }
    }
}

fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    if std::fs::metadata(path)?.len() > MAX_FILE {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    std::fs::read(path)
}
