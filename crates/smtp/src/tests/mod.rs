//! Mail against a server that accepts, refuses, hangs and closes.

mod fake_server;

use domain::error::chain;
use secrecy::SecretString;
use uuid::Uuid;

use super::*;
use fake_server::{FakeServer, Fault, ServerTls};

const PASSWORD: &str = "canary-password";

fn config(server: &FakeServer, encryption: Encryption) -> Config {
    Config {
        host: "localhost".to_owned(),
        port: server.port,
        encryption,
        credentials: None,
        from: "Agents <agents@example.org>".parse().unwrap(),
        authorities: Some(server.authority.clone()),
    }
}

fn with_login(config: Config) -> Config {
    let credentials = Some(("agents".to_owned(), SecretString::from(PASSWORD)));
    Config {
        credentials,
        ..config
    }
}

fn mail() -> Mail {
    Mail {
        id: Uuid::nil(),
        to: "mia@example.org".to_owned(),
        subject: "Invitation to Crew".to_owned(),
        text: "https://agents.example/invite#canary-link\n.\nlast line\n".into(),
    }
}

async fn plain(faults: &[(&'static str, Fault)]) -> (FakeServer, SmtpMailer) {
    let server = FakeServer::start(ServerTls::Never, faults).await;
    let config = with_login(config(&server, Encryption::None));
    let mailer = SmtpMailer::new(config).unwrap();
    (server, mailer)
}

#[tokio::test]
async fn a_mail_is_handed_over_encrypted_and_with_a_login() {
    for (tls, encryption) in [
        (ServerTls::AfterStartTls, Encryption::StartTls),
        (ServerTls::Always, Encryption::Tls),
        (ServerTls::Never, Encryption::None),
    ] {
        let server = FakeServer::start(tls, &[]).await;
        let mailer = SmtpMailer::new(with_login(config(&server, encryption))).unwrap();
        mailer.check().await.unwrap();
        assert_eq!(server.received().mails.len(), 0, "a check sends nothing");
        mailer.send(&mail()).await.unwrap();
        let received = server.received();
        let commands = received.commands.join("\n");
        for expected in [
            "EHLO example.org",
            "AUTH PLAIN ",
            "MAIL FROM:<agents@example.org>",
            "RCPT TO:<mia@example.org>",
        ] {
            assert!(commands.contains(expected), "{expected}: {commands}");
        }
        let [mail] = received.mails.as_slice() else {
            panic!("{received:?}");
        };
        assert!(mail.contains("Subject: Invitation to Crew\r\n"), "{mail}");
        // A line with a dot alone does not end the mail.
        assert!(mail.contains("#canary-link\r\n..\r\nlast line"), "{mail}");
    }
}

#[tokio::test]
async fn a_mail_goes_to_no_server_that_is_not_encrypted_or_not_known() {
    let plain = FakeServer::start(ServerTls::Never, &[]).await;
    let mailer = SmtpMailer::new(with_login(config(&plain, Encryption::StartTls))).unwrap();
    let error = mailer.send(&mail()).await.unwrap_err();
    assert!(matches!(error, MailError::Unusable(_)), "{error:?}");
    assert!(error.to_string().contains("STARTTLS"), "{error}");

    let server = FakeServer::start(ServerTls::AfterStartTls, &[]).await;
    let stranger = Config {
        authorities: None,
        ..with_login(config(&server, Encryption::StartTls))
    };
    let mailer = SmtpMailer::new(stranger).unwrap();
    for result in [mailer.send(&mail()).await, mailer.check().await] {
        let error = result.unwrap_err();
        assert!(matches!(error, MailError::Unreachable(_)), "{error:?}");
        assert!(chain(&error).contains("certificate"));
    }
    for server in [plain, server] {
        let commands = server.received().commands.join("\n");
        assert!(
            !commands.contains("AUTH") && !commands.contains("MAIL"),
            "{commands}"
        );
    }
}

/// What the server says is in no text: it quotes addresses.
#[tokio::test]
async fn a_refusal_has_its_code_only() {
    for (at, reply, code) in [
        ("greeting", "421 too busy for mia@example.org", 421),
        ("EHLO", "502 not for mia@example.org", 502),
        ("AUTH", "535 wrong password canary-password", 535),
        ("MAIL", "530 not from mia@example.org", 530),
        ("RCPT", "550 no mailbox mia@example.org", 550),
        ("RCPT", "451-greylisted\r\n451 mia@example.org", 451),
        ("DATA", "554 not for mia@example.org", 554),
        (".", "552 too large for mia@example.org", 552),
        (".", "452 no room for mia@example.org", 452),
    ] {
        let (_server, mailer) = plain(&[(at, Fault::Reply(reply))]).await;
        let error = mailer.send(&mail()).await.unwrap_err();
        let is_code = matches!(&error, MailError::Refused(it) if *it == code);
        assert!(is_code, "{at}: {error:?}");
        let shown = format!("{error:?} {}", chain(&error));
        assert!(
            !shown.contains("mia@") && !shown.contains("canary"),
            "{shown}"
        );
        if at == "AUTH" {
            let checked = mailer.check().await;
            assert!(matches!(checked, Err(MailError::Refused(535))));
        }
    }
}

#[tokio::test]
async fn a_server_that_closes_or_talks_nonsense_is_an_error() {
    for at in ["greeting", "EHLO", "AUTH", "MAIL", "RCPT", "DATA", "."] {
        let (_server, mailer) = plain(&[(at, Fault::Close)]).await;
        let error = mailer.send(&mail()).await.unwrap_err();
        let is_known = matches!(error, MailError::Unreachable(_) | MailError::Unusable(_));
        assert!(is_known, "{at}: {error:?}");
    }
    let nonsense = Fault::Reply("mia@example.org HTTP/1.1 200 OK");
    let (_server, mailer) = plain(&[("greeting", nonsense)]).await;
    let error = mailer.send(&mail()).await.unwrap_err();
    assert!(matches!(error, MailError::Unusable(_)), "{error:?}");
    assert!(!chain(&error).contains("mia@"));

    let (server, _) = plain(&[]).await;
    let free = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let closed = Config {
        port: free,
        ..config(&server, Encryption::None)
    };
    let error = SmtpMailer::new(closed).unwrap().check().await.unwrap_err();
    assert!(matches!(error, MailError::Unreachable(_)), "{error:?}");
}

/// A server that hangs costs its mails, and none after it recovers.
#[tokio::test]
async fn a_server_that_hangs_is_given_up() {
    for at in ["greeting", "EHLO", "AUTH", "RCPT", "."] {
        let (_server, mailer) = plain(&[(at, Fault::Hang)]).await;
        let mailer = SmtpMailer {
            timeout: Duration::from_millis(300),
            ..mailer
        };
        let mail = mail();
        // More than there are connections.
        let all = (0..3 * MAX_CONNECTIONS).map(|_| mailer.send(&mail));
        let results = futures::future::join_all(all).await;
        let timed_out = |it: &Result<(), MailError>| matches!(it, Err(MailError::TimedOut));
        assert!(results.iter().all(timed_out), "{at}: {results:?}");
        assert!(
            matches!(mailer.check().await, Err(MailError::TimedOut)) || at == "RCPT" || at == "."
        );
        assert_eq!(mailer.slots.available_permits(), MAX_CONNECTIONS);
    }
}

#[test]
fn nothing_shows_the_password() {
    let config = Config {
        host: "localhost".to_owned(),
        port: 25,
        encryption: Encryption::None,
        credentials: Some(("agents".to_owned(), SecretString::from(PASSWORD))),
        from: "agents@example.org".parse().unwrap(),
        authorities: None,
    };
    let shown = format!("{config:?} {:?}", SmtpMailer::new(config.clone()).unwrap());
    assert!(!shown.contains(PASSWORD), "{shown}");
    for bad in [
        "",
        "agents",
        "a@b@c.example",
        "agents@example.org\r\nBcc: x@y.example",
    ] {
        assert_eq!(bad.parse::<Sender>(), Err(InvalidSender), "{bad}");
    }
}
