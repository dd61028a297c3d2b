//! Sections `auth` and `secrets`.

use std::path::PathBuf;

use application::SessionLifetimes;
use domain::id::UserId;
use keyring::MasterKey;
use sandbox_provider::is_loopback;
use secrecy::SecretString;
use settings::SettingReader;

pub(crate) use super::auth_mode::AuthModeSetting;
use super::http::HttpSettings;
use super::identity_providers::OidcSettings;
use super::storage::StorageSettings;

#[derive(Debug, Clone)]
pub(crate) struct AuthSettings {
    pub(crate) mode: AuthModeSetting,
    /// Why people cannot sign in, although the mode is the default one. The mode in force is then `ApiKey`.
    pub(crate) without_sign_in: Option<String>,
    pub(crate) bootstrap_key: Option<SecretString>,
    pub(crate) sessions: SessionLifetimes,
    pub(crate) oidc: Vec<OidcSettings>,
}

/// The user of the first key, and of all requests in open mode.
pub(crate) const FIRST_USER: &str = "admin";

pub(crate) fn first_user() -> UserId {
    UserId::parse(FIRST_USER).expect("a constant name")
}

impl AuthSettings {
    pub(crate) fn local_user(&self) -> Option<UserId> {
        (self.mode == AuthModeSetting::Open).then(first_user)
    }

    pub(in crate::config) fn read(reader: &SettingReader<'_>, http: &HttpSettings) -> Self {
        let modes = [
            ("api_key", AuthModeSetting::ApiKey),
            ("accounts", AuthModeSetting::Accounts),
            ("open", AuthModeSetting::Open),
        ];
        let mut mode = reader.choice("auth.mode", &modes);
        let is_allowed_on_public = reader.switch("auth.allow_open_on_public");
        if mode == AuthModeSetting::Open && !http.bind.ip().is_loopback() && !is_allowed_on_public {
            let problem = format!(
                "is `open`, but other machines can reach {}: any client that sends a request could run commands on this \
                     machine. Listen on 127.0.0.1, use `api_key`, or set WORKSPACE_AUTH__ALLOW_OPEN_ON_PUBLIC=true",
                http.bind
            );
            reader.problem("auth.mode", &problem);
        }
        let obstacle = match mode {
            AuthModeSetting::Accounts => sign_in_obstacle(reader, http),
            AuthModeSetting::ApiKey | AuthModeSetting::Open => None,
        };
        // Accounts are only the default: a service that is reached in another way starts with keys.
        let without_sign_in = obstacle.filter(|(key, problem)| {
            let is_default = reader.is_default("auth.mode");
            if !is_default {
                reader.problem(key, problem);
            }
            is_default
        });
        if without_sign_in.is_some() {
            mode = AuthModeSetting::ApiKey;
        }
        Self {
            mode,
            without_sign_in: without_sign_in.map(|(key, problem)| format!("{key} {problem}")),
            oidc: OidcSettings::read_all(reader, mode),
            bootstrap_key: reader.key_text("auth.bootstrap_key"),
            sessions: SessionLifetimes {
                idle: reader.deadline("auth.session_idle_timeout"),
                absolute: reader.deadline("auth.session_lifetime"),
            },
        }
    }
}

/// The setting with which other machines or sandboxes would get passwords or session cookies, and why.
fn sign_in_obstacle(
    reader: &SettingReader<'_>,
    http: &HttpSettings,
) -> Option<(&'static str, String)> {
    let url = http.public_url(http.bind);
    if url.scheme() != "https" && !is_loopback(&url) {
        let problem = format!(
            "is `accounts`, but {url} is not encrypted: passwords and sessions would cross the network in plain text. \
                 Terminate TLS in a proxy and set WORKSPACE_HTTP__PUBLIC_URL to its https URL, or use `api_key`"
        );
        return Some(("auth.mode", problem));
    }
    let is_direct = reader.switch("sandbox.direct_urls");
    is_direct.then(|| {
        let problem = "must be false with auth.mode = \"accounts\": cookies do not distinguish ports, so browsers \
                 would send sessions to sandboxes";
        ("sandbox.direct_urls", problem.to_owned())
    })
}

/// The configured master keys, parsed, so that an invalid one is a problem of the configuration.
#[derive(Debug)]
pub(crate) struct SecretsSettings {
    /// The key to use; `None`: the one in the data directory.
    pub(crate) master_key: Option<MasterKey>,
    pub(crate) previous: Vec<MasterKey>,
    /// The files that contain them, if any; reread while the service runs.
    pub(crate) files: Vec<PathBuf>,
}

impl SecretsSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>, storage: &StorageSettings) -> Self {
        let parse = |key: &str, text: &SecretString| {
            let parsed = MasterKey::parse_all(text);
            parsed.unwrap_or_else(|_| {
                reader.problem(
                    key,
                    "must be 32 bytes in base64, e.g. from `openssl rand -base64 32`",
                );
                Vec::new()
            })
        };
        let text = reader.secret("secrets.master_key");
        if text.is_none() && storage.is_shared {
            reader.problem(
                "secrets.master_key",
                "is required with Postgres: every machine that shares the database needs the same one. Create one \
                     with `openssl rand -base64 32` and set WORKSPACE_SECRETS__MASTER_KEY or …_FILE",
            );
        }
        // One per line: the key to seal with, then previous ones. A rotation therefore changes the file atomically.
        let keys = text.map(|text| parse("secrets.master_key", &text));
        let mut keys = keys.unwrap_or_default().into_iter();
        let master_key = keys.next();
        let mut previous: Vec<MasterKey> = keys.collect();
        for text in reader.secret_list("secrets.previous_master_keys") {
            previous.extend(parse("secrets.previous_master_keys", &text));
        }
        let files = [
            "secrets.master_key_file",
            "secrets.previous_master_keys_file",
        ];
        let files = files.iter().filter_map(|key| reader.optional_path(key));
        Self {
            master_key,
            previous,
            files: files.collect(),
        }
    }
}
