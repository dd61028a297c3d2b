//! A check of `doctor`: whether the mail server takes mail from this service. It sends none.

use domain::error::chain;
use domain::user::mail::MailError;

use super::DoctorReport;
use crate::compose;
use crate::config::MailSettings;

/// Replies to a login that is missing or wrong (RFC 4954).
const LOGIN_REFUSALS: [u16; 4] = [530, 534, 535, 538];

pub(super) async fn examine(settings: Option<&MailSettings>, report: &mut DoctorReport) {
    let what = "mail";
    let Some(settings) = settings else {
        return;
    };
    let server = format!("{}:{}", settings.host, settings.port);
    let mailer = match compose::open_mailer(settings) {
        Ok(mailer) => mailer,
        Err(error) => return report.problem(what, format!("{error:#}")),
    };
    match mailer.check().await {
        Ok(()) => report.ok(what, format!("{server} accepts the connection and the login")),
        Err(error) => report.warn(
            what,
            format!(
                "{server}: {}. Invitations are shown to the inviter only, and links for new passwords are lost: {}",
                chain(&error),
                advice(&error)
            ),
        ),
    }
}

fn advice(error: &MailError) -> &'static str {
    match error {
        MailError::Refused(code) if LOGIN_REFUSALS.contains(code) => {
            "check mail.user and mail.password"
        }
        _ => "check mail.host, mail.port and mail.tls, and the firewall",
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::config::MailTlsSetting;

    #[tokio::test]
    async fn an_unreachable_mail_server_is_a_warning() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = closed.local_addr().unwrap().port();
        drop(closed);
        let settings = MailSettings {
            host: "127.0.0.1".to_owned(),
            port,
            tls: MailTlsSetting::None,
            credentials: None,
            from: "agents@example.org".to_owned(),
            authorities: None,
        };
        let mut report = DoctorReport::default();
        examine(Some(&settings), &mut report).await;
        let shown = report.render(false);
        assert!(shown.starts_with("warning  mail: 127.0.0.1:"), "{shown}");
        assert!(shown.contains("check mail.host"), "{shown}");
        let refused = MailError::Refused(535);
        assert_eq!(advice(&refused), "check mail.user and mail.password");
    }
}
