//! Section `automations`.

use std::ffi::OsString;
use std::path::PathBuf;

use secrecy::SecretString;
use settings::SettingReader;

/// The automations service.
#[derive(Debug, Clone)]
pub(crate) struct AutomationsSettings {
    pub(crate) is_enabled: bool,
    /// Program and arguments, to which `--host` and `--port` are appended; `None`: the installed package.
    pub(crate) command: Option<Vec<OsString>>,
    /// The version to install; `None`: the pinned one.
    pub(crate) version: Option<String>,
    /// Use only this Python.
    pub(crate) python: Option<PathBuf>,
    /// Package index. May contain credentials.
    pub(crate) index_url: Option<SecretString>,
    /// Proxy for the installation. May contain credentials.
    pub(crate) proxy: Option<SecretString>,
    /// A folder of wheels; with it nothing is downloaded.
    pub(crate) wheels: Option<PathBuf>,
}

impl AutomationsSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Self {
        let command = reader.words("automations.command", "a command, quoted as for a shell");
        Self {
            is_enabled: reader.choice("automations.enabled", &[("auto", true), ("off", false)]),
            command: command.map(|words| words.into_iter().map(OsString::from).collect()),
            version: reader.optional("automations.version"),
            // As for the agent server.
            python: reader.optional_path("sandbox.python"),
            index_url: reader.secret("sandbox.index_url"),
            proxy: reader.secret("sandbox.proxy"),
            wheels: reader.optional_path("sandbox.wheel_dir"),
        }
    }
}
