//! Section `mail`.

use std::net::IpAddr;
use std::path::PathBuf;

use secrecy::SecretString;
use settings::SettingReader;

use super::git::authorities;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MailTlsSetting {
    StartTls,
    Tls,
    None,
}

/// The mail server. `compose/mail.rs` interprets certificates.
#[derive(Debug, Clone)]
pub(crate) struct MailSettings {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: MailTlsSetting,
    /// User and password.
    pub(crate) credentials: Option<(String, SecretString)>,
    /// A valid sender.
    pub(crate) from: String,
    /// Additional certificate authorities: the file and its content.
    pub(crate) authorities: Option<(PathBuf, Vec<u8>)>,
}

impl MailSettings {
    /// `None`: no mail is sent.
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Option<Self> {
        let host = reader.optional_parsed(
            "mail.host",
            "a host name or an IP address, without a port",
            |text| is_host(text).then(|| text.to_owned()),
        );
        let modes = [
            ("starttls", MailTlsSetting::StartTls),
            ("tls", MailTlsSetting::Tls),
            ("none", MailTlsSetting::None),
        ];
        let tls = reader.choice("mail.tls", &modes);
        let from = reader.optional_parsed(
            "mail.from",
            "an address, e.g. agents@example.org or Agents <agents@example.org>",
            |text| crate::compose::adapters::is_mail_sender(text).then(|| text.to_owned()),
        );
        let port = reader.number("mail.port", 1..=65_535);
        let credentials = credentials(reader);
        let authorities = authorities(reader, "mail.ca_file");
        let host = host?;
        if tls == MailTlsSetting::None && !is_loopback(&host) {
            let problem = "is `none`, but mail.host is another machine: links that sign people in would cross the network in \
                           plain text. Use `starttls` or `tls`";
            reader.problem("mail.tls", problem);
        }
        if reader.optional("mail.from").is_none() {
            reader.problem("mail.from", "is required with mail.host");
        }
        Some(Self {
            host,
            port,
            tls,
            credentials,
            // A missing one has been reported.
            from: from.unwrap_or_default(),
            authorities,
        })
    }
}

/// Both or none.
fn credentials(reader: &SettingReader<'_>) -> Option<(String, SecretString)> {
    let user = reader.optional("mail.user");
    let password = reader.secret("mail.password");
    match (&user, &password) {
        (Some(_), None) => reader.problem("mail.password", "is required with mail.user"),
        (None, Some(_)) => reader.problem("mail.user", "is required with mail.password"),
        _ => {}
    }
    user.zip(password)
}

fn is_host(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    text.parse::<IpAddr>().is_ok() || (text.len() <= 253 && text.chars().all(is_name))
}

fn is_loopback(host: &str) -> bool {
    let is_address = host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    is_address || host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use crate::compose::BACKENDS;
    use crate::config::{Config, ConfigError, MailTlsSetting};

    fn load(values: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let mut variables = vec![("HOME".into(), "/home/someone".into())];
        let name = |key: &str| format!("WORKSPACE_MAIL__{key}").into();
        variables.extend(
            values
                .iter()
                .map(|(key, value)| (name(key), (*value).into())),
        );
        Config::load(BACKENDS, None, &variables)
    }

    #[test]
    fn without_a_host_no_mail_is_sent() {
        assert!(load(&[]).unwrap().mail.is_none());
        assert!(
            load(&[("FROM", "agents@example.org")])
                .unwrap()
                .mail
                .is_none()
        );
    }

    #[test]
    fn a_mail_server_is_encrypted_unless_it_is_on_this_machine() {
        let base = [("HOST", "mail.example.org"), ("FROM", "agents@example.org")];
        let mail = load(&base).unwrap().mail.unwrap();
        assert_eq!((mail.port, mail.tls), (587, MailTlsSetting::StartTls));
        assert!(mail.credentials.is_none());
        let login = [
            ("USER", "agents"),
            ("PASSWORD", "canary"),
            ("TLS", "tls"),
            ("PORT", "465"),
        ];
        let config = load(&[&base[..], &login].concat()).unwrap();
        assert!(!format!("{config:?} {}", config.as_toml()).contains("canary"));
        let mail = config.mail.unwrap();
        let (user, password) = mail.credentials.unwrap();
        assert_eq!(
            (user.as_str(), password.expose_secret()),
            ("agents", "canary")
        );
        for local in ["localhost", "127.0.0.1", "::1", "mail.localhost"] {
            let values = [("HOST", local), ("FROM", "a@example.org"), ("TLS", "none")];
            assert!(load(&values).is_ok(), "{local}");
        }
    }

    #[test]
    fn problems_name_their_setting() {
        let base = [("HOST", "mail.example.org"), ("FROM", "agents@example.org")];
        for (more, problem) in [
            (("TLS", "none"), "WORKSPACE_MAIL__TLS"),
            (("TLS", "ssl"), "starttls, tls or none"),
            (("FROM", ""), "mail.from"),
            (("FROM", "agents"), "WORKSPACE_MAIL__FROM"),
            (("HOST", "mail.example.org:25"), "WORKSPACE_MAIL__HOST"),
            (("PORT", "0"), "WORKSPACE_MAIL__PORT"),
            (("USER", "agents"), "mail.password"),
            (("PASSWORD", "canary"), "mail.user"),
            (("CA_FILE", "/nothing/there"), "WORKSPACE_MAIL__CA_FILE"),
        ] {
            let mut values = base.to_vec();
            values.retain(|(key, _)| *key != more.0);
            values.push(more);
            let error = load(&values).unwrap_err().to_string();
            assert!(
                error.contains(problem) && !error.contains("canary"),
                "{error}"
            );
        }
    }
}
