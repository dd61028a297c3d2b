//! Section `automations`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};
use settings::SettingReader;
use url::Url;

use super::http::{HttpSettings, address};

/// The service key opens the rights of runs of all users.
const MIN_SERVICE_KEY: usize = 32;

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
    /// Where it runs; `None`: this service runs it.
    pub(crate) elsewhere: Option<AutomationsElsewhere>,
}

/// An automations service that this service does not run.
#[derive(Debug, Clone)]
pub(crate) struct AutomationsElsewhere {
    pub(crate) url: Url,
    /// Where it calls this service.
    pub(crate) bind: SocketAddr,
    /// The secret with which it asks for keys of users.
    pub(crate) service_key: SecretString,
}

impl AutomationsSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>, http: &HttpSettings) -> Self {
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
            elsewhere: elsewhere(reader, http),
        }
    }
}

/// Three settings that belong together.
fn elsewhere(reader: &SettingReader<'_>, http: &HttpSettings) -> Option<AutomationsElsewhere> {
    let url = reader.optional_url("automations.url");
    let expected = "an address and a port, e.g. 0.0.0.0:3129";
    let bind = reader.optional_parsed("automations.bind", expected, address);
    let service_key = reader.key_text("automations.service_key");
    let (url, bind, service_key) = match (url, bind, service_key) {
        (None, None, None) => return None,
        (Some(url), Some(bind), Some(service_key)) => (url, bind, service_key),
        _ => {
            let problem = "needs automations.bind and automations.service_key, and they need it";
            reader.problem("automations.url", problem);
            return None;
        }
    };
    if url.scheme() != "http" || url.path() != "/" {
        reader.problem("automations.url", "must be an http URL without a path");
    }
    if bind.port() != 0 && bind == http.bind {
        let problem = "equals http.bind: the automations service needs an address of its own";
        reader.problem("automations.bind", problem);
    }
    if service_key.expose_secret().len() < MIN_SERVICE_KEY {
        reader.problem("automations.service_key", "must have 32 characters or more");
    }
    Some(AutomationsElsewhere {
        url,
        bind,
        service_key,
    })
}

#[cfg(test)]
mod tests {
    use crate::compose::BACKENDS;
    use crate::config::Config;

    const URL: &str = "http://automations:8000";
    const BIND: &str = "0.0.0.0:3129";
    const KEY: &str = "a-key-of-the-automations-service";

    #[test]
    fn an_automations_service_elsewhere_needs_three_settings() {
        let load = |[url, bind, key]: [&str; 3]| {
            let variables = [
                ("HOME".into(), "/home/someone".into()),
                ("WORKSPACE_HTTP__BIND".into(), "127.0.0.1:3000".into()),
                ("WORKSPACE_AUTOMATIONS__URL".into(), url.into()),
                ("WORKSPACE_AUTOMATIONS__BIND".into(), bind.into()),
                ("WORKSPACE_AUTOMATIONS__SERVICE_KEY".into(), key.into()),
            ];
            Config::load(BACKENDS, None, &variables)
        };
        assert!(load(["", "", ""]).unwrap().automations.elsewhere.is_none());
        let found = load([URL, BIND, KEY]).unwrap().automations.elsewhere;
        assert_eq!(found.unwrap().url.host_str(), Some("automations"));
        for (case, cause) in [
            ([URL, "", ""], "needs automations.bind"),
            ([URL, BIND, ""], "needs automations.bind"),
            (["", "", KEY], "needs automations.bind"),
            (["https://automations", BIND, KEY], "must be an http URL"),
            (["http://automations/x", BIND, KEY], "without a path"),
            ([URL, "127.0.0.1:3000", KEY], "equals http.bind"),
            ([URL, BIND, "too-short-a-key"], "32 characters"),
        ] {
            let error = load(case).unwrap_err().to_string();
            assert!(error.contains(cause), "{case:?}: {error}");
        }
    }
}
