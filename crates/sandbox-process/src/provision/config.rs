//! Configuration of the provisioner.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use super::package::PythonProgram;

/// How and where to install a program.
#[derive(Debug, Clone)]
pub struct Config {
    /// What to install.
    pub program: PythonProgram,
    /// The service's data directory; the installation is in its folder `agent-server/<version>-<hash>` (or
    /// `automations-server/…`).
    pub data_dir: PathBuf,
    /// The version of its packages, which are only compatible with each other.
    pub version: String,
    /// Use only this Python.
    pub python: Option<PathBuf>,
    /// Package index. May contain credentials: passed by environment, never by argument.
    pub index_url: Option<SecretString>,
    /// HTTP(S) proxy for the installation. May contain credentials, as above.
    pub proxy: Option<SecretString>,
    /// A folder of wheels; with it nothing is downloaded.
    pub wheels: Option<PathBuf>,
    /// The part of the service's environment that an installation may see.
    pub environment: InstallEnvironment,
    /// Deadlines of the steps.
    pub deadlines: Deadlines,
}

impl Config {
    /// The defaults: the tested version from the index that `pip` is configured for.
    pub fn new(
        program: PythonProgram,
        data_dir: impl Into<PathBuf>,
        environment: InstallEnvironment,
    ) -> Self {
        Self {
            program,
            data_dir: data_dir.into(),
            version: program.default_version().to_owned(),
            python: None,
            index_url: None,
            proxy: None,
            wheels: None,
            environment,
            deadlines: Deadlines::default(),
        }
    }

    /// Whether `uv` may download a Python.
    pub(super) fn may_download_python(&self) -> bool {
        self.python.is_none() && self.wheels.is_none()
    }
}

/// Deadlines of the steps; a step that exceeds its deadline is killed with all its children.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// Probing a Python or an installation.
    pub probe: Duration,
    /// Creating the virtual environment (including a download of Python by `uv`).
    pub environment: Duration,
    /// Downloading and unpacking the packages (a few hundred MB); twice if the tested ones are unavailable.
    pub install: Duration,
    /// Compiling byte code.
    pub compile: Duration,
    /// Waiting for another process that installs into the same data directory.
    pub lock: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            probe: Duration::from_secs(60),
            environment: Duration::from_secs(10 * 60),
            install: Duration::from_secs(30 * 60),
            compile: Duration::from_secs(15 * 60),
            // Longer than all steps of an installation together.
            lock: Duration::from_secs(100 * 60),
        }
    }
}

/// Variables that an installation may see: paths of programs and caches, certificates, proxies, and settings of `pip` and
/// `uv`. Build scripts of packages see nothing else, e.g. not the master key.
#[derive(Clone, Default)]
pub struct InstallEnvironment(BTreeMap<OsString, OsString>);

impl InstallEnvironment {
    /// Keeps the permitted ones of `variables` (as in `std::env::vars_os`).
    pub fn pick<K, V>(variables: impl IntoIterator<Item = (K, V)>) -> Self
    where
        K: Into<OsString>,
        V: Into<OsString>,
    {
        let pairs = variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()));
        Self(pairs.filter(|(name, _)| is_permitted(name)).collect())
    }

    /// One variable.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

/// Values may contain credentials (an index URL, a proxy), so only names are shown.
impl fmt::Debug for InstallEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

const PERMITTED_NAMES: [&str; 18] = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TMPDIR",
    "PYENV_ROOT",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];

const PERMITTED_PREFIXES: [&str; 4] = ["PIP_", "UV_", "XDG_", "LC_"];

/// These would make `pip` or `uv` install outside of the virtual environment.
const REMOVED_VARIABLES: [&str; 9] = [
    "PIP_USER",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_DRY_RUN",
    "PIP_PYTHON",
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
    "UV_PROJECT_ENVIRONMENT",
];

fn is_permitted(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    (PERMITTED_NAMES.contains(&name)
        || PERMITTED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix)))
        && !REMOVED_VARIABLES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_permitted_variables_are_kept_and_values_are_not_shown() {
        let environment = InstallEnvironment::pick([
            ("PATH", "/bin"),
            ("PIP_INDEX_URL", "https://user:canary@host/simple"),
            ("UV_CACHE_DIR", "/c"),
            ("PIP_USER", "1"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("PYTHONPATH", "/elsewhere"),
            ("WORKSPACE_SECRETS__MASTER_KEY", "canary"),
        ]);
        let names: Vec<_> = environment
            .iter()
            .map(|(name, _)| name.to_owned())
            .collect();
        assert_eq!(names, ["PATH", "PIP_INDEX_URL", "UV_CACHE_DIR"]);
        assert!(!format!("{environment:?}").contains("canary"));
    }
}
