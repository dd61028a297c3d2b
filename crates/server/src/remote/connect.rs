//! The connection of a command to a running service.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use client::{Client, Error};
use keyring::private_file;
use secrecy::SecretString;
use settings::variable;
use url::Url;

use super::args::ServiceArgs;
use super::saved_login::SavedLogin;
use crate::compose;
use crate::config::{AuthModeSetting, Config};
use crate::data_dir::DataDir;
use settings::EnvVariables;

// Not `WORKSPACE_…`: those are keys of the service's configuration, where unknown ones are errors.
const URL_VARIABLE: &str = "AGENT_WORKSPACE_URL";
const KEY_VARIABLE: &str = "AGENT_WORKSPACE_KEY";
const KEY_FILE_VARIABLE: &str = "AGENT_WORKSPACE_KEY_FILE";

pub(super) struct Connection {
    pub(super) client: Client,
    /// The source of the key, for a person.
    key_source: String,
    /// Whether the service is the one configured here.
    is_local: bool,
}

impl Connection {
    /// Takes the service from the arguments, the environment, the login or the configuration, in this order. The key of the login
    /// and the first key of the configured service are sent to no other URL.
    pub(super) fn new(
        service: &ServiceArgs,
        config: Option<&Path>,
        variables: &EnvVariables,
    ) -> anyhow::Result<Self> {
        let url = service
            .url
            .clone()
            .map_or_else(|| text(variables, URL_VARIABLE), |url| Ok(Some(url)))?;
        let explicit = explicit_key(service, variables)?;
        let login = match explicit {
            // A given key is meant for the service configured here.
            None if url.is_some() || config.is_none() => SavedLogin::load(variables)?,
            _ => None,
        };
        let (url, (key, key_source), is_local) = if let Some(url) = url {
            let of_login = || {
                login
                    .filter(|login| is_same(&login.url, &url))
                    .map(login_key)
            };
            let key = explicit.or_else(of_login).unwrap_or_else(no_key);
            (url, key, false)
        } else if let Some(login) = login {
            (login.url.clone(), login_key(login), false)
        } else {
            let config = Config::load(compose::BACKENDS, config, variables)?;
            let url = local_url(&config)?;
            let key = explicit.map_or_else(|| local_key(&config), Ok)?;
            (url, key, true)
        };
        Ok(Self {
            client: Client::new(&url, key).map_err(|error| anyhow!("{error}"))?,
            key_source,
            is_local,
        })
    }

    pub(super) fn explain(&self, error: Error) -> anyhow::Error {
        let advice = match &error {
            Error::Unreachable { .. } if self.is_local => {
                format!(
                    "Is the service running? `agent-workspace serve` starts it; name a service on another machine by --url or \
                         {URL_VARIABLE}."
                )
            }
            Error::Unreachable { .. } => {
                format!("Is the service running, and is this its URL (--url or {URL_VARIABLE})?")
            }
            Error::Refused(refusal) if refusal.status == 401 => format!(
                "The request was sent with this key: {}. Set another one by --key-file, {KEY_FILE_VARIABLE} or {KEY_VARIABLE}; `agent-workspace \
                     login URL` gets one by a browser; on the service's machine, `agent-workspace keys create --user NAME` creates one.",
                self.key_source
            ),
            _ => return error.into(),
        };
        anyhow!("{:#}\n  {advice}", anyhow::Error::new(error))
    }
}

type Key = (Option<SecretString>, String);

fn login_key(login: SavedLogin) -> Key {
    (Some(login.key), "the key of `agent-workspace login`".into())
}

/// Whether both URLs name the same service.
fn is_same(one: &str, other: &str) -> bool {
    let url = |text: &str| Url::parse(text.trim_end_matches('/')).ok();
    url(one).is_some_and(|one| Some(one) == url(other))
}

fn no_key() -> Key {
    (None, "none".into())
}

fn explicit_key(service: &ServiceArgs, variables: &EnvVariables) -> anyhow::Result<Option<Key>> {
    if let Some(file) = &service.key_file {
        return read(file, "--key-file").map(Some);
    }
    let file = variable(variables, KEY_FILE_VARIABLE).map(PathBuf::from);
    match (file, text(variables, KEY_VARIABLE)?) {
        (Some(_), Some(_)) => {
            bail!("{KEY_VARIABLE} and {KEY_FILE_VARIABLE} are both set: set only one of them")
        }
        (Some(file), None) => read(&file, KEY_FILE_VARIABLE).map(Some),
        (None, Some(key)) => Ok(Some((
            Some(key.into()),
            format!("the key in {KEY_VARIABLE}"),
        ))),
        (None, None) => Ok(None),
    }
}

fn read(file: &Path, named_by: &str) -> anyhow::Result<Key> {
    let key = private_file::read(file)
        .with_context(|| format!("cannot read the API key in {} ({named_by})", file.display()))?;
    Ok((Some(key), format!("the key in {}", file.display())))
}

fn local_url(config: &Config) -> anyhow::Result<String> {
    if !config.http.is_url_configured() && config.http.bind.port() == 0 {
        bail!(
            "http.bind has port 0, so the service's port is unknown: set --url or {URL_VARIABLE}"
        );
    }
    Ok(config.http.public_url(config.http.bind).to_string())
}

fn local_key(config: &Config) -> anyhow::Result<Key> {
    if config.auth.mode == AuthModeSetting::Open {
        return Ok(no_key());
    }
    if let Some(key) = &config.auth.bootstrap_key {
        return Ok((Some(key.clone()), "the key `auth.bootstrap_key`".into()));
    }
    let file = DataDir::at(&config.data_dir).bootstrap_key();
    read(&file, "the first key of the service configured here").with_context(|| {
        format!(
            "there is no API key to use. Set one by --key-file, {KEY_FILE_VARIABLE} or {KEY_VARIABLE}; \
                 `agent-workspace keys create --user NAME` creates one"
        )
    })
}

fn text(variables: &EnvVariables, name: &str) -> anyhow::Result<Option<String>> {
    let text = variable(variables, name).map(|value| {
        let text = value.to_str().map(str::to_owned);
        text.with_context(|| format!("{name} must be valid UTF-8"))
    });
    text.transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(
        url: Option<&str>,
        key_file: Option<&Path>,
        variables: &[(&str, &str)],
    ) -> anyhow::Result<Connection> {
        let service = ServiceArgs {
            url: url.map(Into::into),
            key_file: key_file.map(Into::into),
            json: false,
        };
        let variables: Vec<_> = variables
            .iter()
            .map(|(a, b)| (a.into(), b.into()))
            .collect();
        Connection::new(&service, None, &variables)
    }

    #[test]
    fn the_first_key_goes_to_the_configured_service_only() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("bootstrap.key"), "aw_first\n").unwrap();
        let data = ("WORKSPACE_DATA_DIR", folder.path().to_str().unwrap());
        let local = connect(None, None, &[data]).unwrap();
        assert_eq!(local.client.url().as_str(), "http://127.0.0.1:3000/");
        assert!(local.is_local && local.key_source.contains("bootstrap.key"));

        let public = ("WORKSPACE_HTTP__PUBLIC_URL", "https://host.example/agents");
        let local = connect(None, None, &[data, public]).unwrap();
        assert_eq!(local.client.url().as_str(), "https://host.example/agents");

        let other = connect(Some("http://other.example"), None, &[data]).unwrap();
        assert_eq!((other.key_source.as_str(), other.is_local), ("none", false));
        let other = connect(None, None, &[data, (URL_VARIABLE, "http://other.example")]).unwrap();
        assert_eq!(other.key_source, "none");
    }

    #[test]
    fn keys_come_from_a_file_or_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, "aw_x\n").unwrap();
        let path = file.to_str().unwrap();
        let url = Some("http://h");
        assert!(
            connect(url, Some(&file), &[(KEY_VARIABLE, "y")])
                .unwrap()
                .key_source
                .contains(path)
        );
        assert!(
            connect(url, None, &[(KEY_FILE_VARIABLE, path)])
                .unwrap()
                .key_source
                .contains(path)
        );
        assert!(
            connect(url, None, &[(KEY_VARIABLE, "y"), (KEY_FILE_VARIABLE, "")])
                .unwrap()
                .key_source
                .contains(KEY_VARIABLE)
        );
        for (key_file, variables) in [
            (None, &[(KEY_VARIABLE, "y"), (KEY_FILE_VARIABLE, path)][..]),
            (Some(Path::new("/no/such/file")), &[]),
            (None, &[(KEY_VARIABLE, "canary\u{7}")]),
        ] {
            let error = connect(url, key_file, variables).err().expect("an error");
            assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        }
    }

    #[test]
    fn the_key_of_a_login_goes_to_its_service_only() {
        let folder = tempfile::tempdir().unwrap();
        let config = ("XDG_CONFIG_HOME", folder.path().to_str().unwrap());
        let login = SavedLogin {
            url: "https://host.example/agents".to_owned(),
            key: "aw_canary".into(),
        };
        let variables = [(config.0.into(), config.1.into())];
        let file = login.store(&variables).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let source = |url, variables: &[(&str, &str)]| {
            let found = connect(url, None, variables).unwrap();
            assert!(!found.is_local || variables.len() > 1);
            (found.client.url().to_string(), found.key_source)
        };
        let kept = "the key of `agent-workspace login`";
        for url in [
            None,
            Some("https://host.example/agents"),
            Some("https://host.example/agents/"),
        ] {
            let (url, key) = source(url, &[config]);
            assert_eq!(
                (url.trim_end_matches('/'), key.as_str()),
                (login.url.as_str(), kept)
            );
        }
        for url in [
            "https://host.example",
            "http://host.example/agents",
            "https://evil.example/agents",
        ] {
            assert_eq!(source(Some(url), &[config]).1, "none", "{url}");
        }
        let data = ("WORKSPACE_DATA_DIR", "/nowhere");
        let (url, key) = source(None, &[config, data, (KEY_VARIABLE, "aw_other")]);
        assert_eq!(
            (url.as_str(), key.contains(KEY_VARIABLE)),
            ("http://127.0.0.1:3000/", true)
        );
        SavedLogin::remove(&variables).unwrap();
        assert!(SavedLogin::load(&variables).unwrap().is_none());
        std::fs::write(&file, "broken").unwrap();
        let error = connect(None, None, &[config]).err().unwrap();
        assert!(
            format!("{error:#}").contains("agent-workspace login"),
            "{error:#}"
        );
    }

    #[test]
    fn errors_contain_advice() {
        let local = connect(None, None, &[("HOME", "/nowhere"), (KEY_VARIABLE, "x")]).unwrap();
        let refused = client::Refusal::read(401, None, b"{\"detail\":\"Unauthorized\"}");
        let message = format!("{:#}", local.explain(Error::Refused(refused)));
        for part in ["401", KEY_VARIABLE, "keys create"] {
            assert!(message.contains(part), "{message}");
        }
        let origin = "http://127.0.0.1:3000".to_owned();
        let source = "connection refused".into();
        let message = format!("{:#}", local.explain(Error::Unreachable { origin, source }));
        for part in [
            "127.0.0.1:3000",
            "connection refused",
            "agent-workspace serve",
        ] {
            assert!(message.contains(part), "{message}");
        }
        let none = connect(None, None, &[("HOME", "/nowhere")]).err().unwrap();
        assert!(format!("{none:#}").contains("keys create"), "{none:#}");
    }
}
