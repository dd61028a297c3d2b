//! The mail server.

use std::sync::Arc;

use anyhow::Context as _;
use domain::user::mail::Mailer;
use git_hosting::CaCertificates;
use smtp::{Config, Encryption, SmtpMailer};

use crate::config::{MailSettings, MailTlsSetting};

pub(super) fn mailer(settings: Option<&MailSettings>) -> anyhow::Result<Option<Arc<dyn Mailer>>> {
    let opened = settings.map(open_mailer).transpose()?;
    Ok(opened.map(|mailer| Arc::new(mailer) as _))
}

pub(crate) fn open_mailer(settings: &MailSettings) -> anyhow::Result<SmtpMailer> {
    if let Some((path, pem)) = &settings.authorities {
        CaCertificates::from_pem(pem).map_err(|problem| {
            anyhow::anyhow!(
                "mail.ca_file (WORKSPACE_MAIL__CA_FILE) names {}, which {problem}",
                path.display()
            )
        })?;
    }
    let config = Config {
        host: settings.host.clone(),
        port: settings.port,
        encryption: match settings.tls {
            MailTlsSetting::StartTls => Encryption::StartTls,
            MailTlsSetting::Tls => Encryption::Tls,
            MailTlsSetting::None => Encryption::None,
        },
        credentials: settings.credentials.clone(),
        from: settings.from.parse()?,
        authorities: settings.authorities.as_ref().map(|(_, pem)| pem.clone()),
    };
    SmtpMailer::new(config).context("TLS for the mail server is not available")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mailer_is_opened_where_a_server_is_configured() {
        assert!(mailer(None).unwrap().is_none());
        let mut settings = MailSettings {
            host: "localhost".to_owned(),
            port: 587,
            tls: MailTlsSetting::StartTls,
            credentials: None,
            from: "agents@example.org".to_owned(),
            authorities: None,
        };
        assert!(mailer(Some(&settings)).unwrap().is_some());
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for pem in ["", "no PEM", broken] {
            settings.authorities = Some(("/etc/ca.pem".into(), pem.into()));
            let error = mailer(Some(&settings)).err().unwrap().to_string();
            assert!(error.contains("WORKSPACE_MAIL__CA_FILE") && error.contains("/etc/ca.pem"));
        }
    }
}
