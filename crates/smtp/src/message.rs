//! The text of a mail on the wire.

use domain::user::mail::{Mail, MailError};
use lettre::message::header::ContentType;
use lettre::message::{Mailbox, Message};
use secrecy::ExposeSecret as _;

use crate::Sender;

/// Writes a mail. The library encodes the headers, so that no name adds one.
pub(crate) fn write(from: &Sender, mail: &Mail) -> Result<Message, MailError> {
    let to = mail.to.parse().map_err(|_| MailError::InvalidAddress)?;
    let message = Message::builder()
        .from(from.0.clone())
        .to(Mailbox::new(None, to))
        .subject(mail.subject.as_str())
        .message_id(Some(format!("<{}@{}>", mail.id, from.domain())))
        .header(ContentType::TEXT_PLAIN)
        .body(mail.text.expose_secret().to_owned());
    message.map_err(|_| MailError::InvalidAddress)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn written(to: &str, subject: &str, text: &str) -> Result<String, MailError> {
        let from: Sender = "Agents <agents@example.org>".parse().unwrap();
        let mail = Mail {
            id: Uuid::nil(),
            to: to.to_owned(),
            subject: subject.to_owned(),
            text: text.into(),
        };
        let message = write(&from, &mail)?;
        Ok(String::from_utf8(message.formatted()).unwrap())
    }

    #[test]
    fn a_mail_is_plain_text_with_the_usual_headers() {
        let link = "https://agents.example/invite#".to_owned() + &"x".repeat(60);
        let text = written("mia@example.org", "Invitation to Crew", &link).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        for line in [
            "From: Agents <agents@example.org>",
            "To: mia@example.org",
            "Subject: Invitation to Crew",
            "Message-ID: <00000000-0000-0000-0000-000000000000@example.org>",
            "Content-Type: text/plain; charset=utf-8",
        ] {
            assert!(head.lines().any(|it| it == line), "{line}: {head}");
        }
        assert!(head.contains("\r\nDate: "), "{head}");
        // Readers join the line again.
        assert_eq!(body.trim_end().replace("=\r\n", ""), link);
    }

    #[test]
    fn no_name_adds_a_header_or_a_recipient() {
        for evil in [
            "Crew\r\nBcc: eve@example.org",
            "Crew\nBcc: eve@example.org",
            "Crew\rBcc: eve@example.org",
            "Crew\r\n\r\nBcc: eve@example.org",
            "Ünïcode\r\nBcc: eve@example.org",
        ] {
            let text = written("mia@example.org", evil, "text").unwrap();
            let (head, _) = text.split_once("\r\n\r\n").unwrap();
            let starts = head.split(['\r', '\n']).map(str::to_ascii_lowercase);
            let added = starts.filter(|line| line.starts_with("bcc:"));
            assert_eq!(added.count(), 0, "{evil:?}: {text}");
            assert_eq!(head.matches("To: ").count(), 1, "{text}");
        }
    }

    #[test]
    fn other_addresses_than_one_are_refused() {
        for bad in [
            "",
            "mia",
            "mia@",
            "mia@example.org, eve@example.org",
            "mia@example.org\r\nBcc: eve@example.org",
            "<mia@example.org>",
            "Mia <mia@example.org>",
            "mia@exa mple.org",
        ] {
            let result = written(bad, "s", "t");
            assert!(matches!(result, Err(MailError::InvalidAddress)), "{bad:?}");
        }
    }
}
