//! The login that `agent-workspace login` keeps: a service and an API key, in the user's configuration directory.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use keyring::private_file;
use secrecy::{ExposeSecret as _, SecretString};
use settings::variable;

use settings::EnvVariables;

/// The file below the configuration directory.
const FILE: &str = "agent-workspace/login";

/// A service and a key of its user. The file has the URL in its first line and the key in its second.
pub(super) struct SavedLogin {
    pub(super) url: String,
    pub(super) key: SecretString,
}

/// `$XDG_CONFIG_HOME/agent-workspace/login`, by default below `~/.config`; `None` without a home directory.
pub(super) fn path(variables: &EnvVariables) -> Option<PathBuf> {
    let directory = |name: &str| {
        let path = variable(variables, name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let config = directory("XDG_CONFIG_HOME")
        .or_else(|| directory("HOME").map(|home| home.join(".config")))?;
    Some(config.join(FILE))
}

impl SavedLogin {
    /// The login that is kept, if there is one.
    pub(super) fn load(variables: &EnvVariables) -> anyhow::Result<Option<Self>> {
        let Some(path) = path(variables) else {
            return Ok(None);
        };
        let text = match private_file::read(&path) {
            Ok(text) => text,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            Err(error) => {
                let what = format!("cannot read the login in {}", path.display());
                return Err(error).context(what);
            }
        };
        let Some((url, key)) = text.expose_secret().split_once('\n') else {
            bail!(
                "{} has no login: delete it, and repeat `agent-workspace login URL`",
                path.display()
            );
        };
        Ok(Some(Self {
            url: url.trim().to_owned(),
            key: key.trim().into(),
        }))
    }

    /// Keeps the login, readable by its owner only. Returns the path of the file.
    pub(super) fn store(&self, variables: &EnvVariables) -> anyhow::Result<PathBuf> {
        let path = path(variables)
            .context("there is no directory for the login: set HOME or XDG_CONFIG_HOME")?;
        if let Some(directory) = path.parent() {
            let made = DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory);
            made.with_context(|| format!("cannot create {}", directory.display()))?;
        }
        let text = SecretString::from(format!("{}\n{}\n", self.url, self.key.expose_secret()));
        private_file::replace(&path, text.expose_secret())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Forgets the login.
    pub(super) fn remove(variables: &EnvVariables) -> anyhow::Result<()> {
        let Some(path) = path(variables) else {
            return Ok(());
        };
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot delete {}", path.display()))
            }
            _ => Ok(()),
        }
    }
}
