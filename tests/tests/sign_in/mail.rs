//! Mail by the real binary: an invitation, and a forgotten password.

use acceptance::Service;
use acceptance::wait::wait_for;
use reqwest::{Method, StatusCode};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::organizations::{call, enrol, found_organization};
use super::{Browser, code_in, code_of};

const MAIL_TIMEOUT: Duration = Duration::from_secs(60);

/// A mail server that takes everything. `smtp` has tests with encryption, logins and refusals.
struct MailServer {
    port: u16,
    mails: UnboundedReceiver<String>,
    _accepting: tokio::task::JoinSet<()>,
}

impl MailServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (sender, mails) = unbounded_channel();
        let mut accepting = tokio::task::JoinSet::new();
        accepting.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that goes away in the middle has sent no mail.
                let _ = take_mail(stream, &sender).await;
            }
        });
        Self {
            port,
            mails,
            _accepting: accepting,
        }
    }

    /// The next mail to the address.
    async fn next(&mut self, to: &str) -> String {
        let mail = tokio::time::timeout(MAIL_TIMEOUT, self.mails.recv());
        let mail = mail.await.expect("a mail arrives").expect("a server");
        assert!(mail.contains(&format!("RCPT TO:<{to}>")), "{mail}");
        // Long lines end with `=` in a mail.
        mail.replace("=\r\n", "").replace("=3D", "=")
    }
}

/// Answers each command, and passes on what the client said when the mail is complete.
async fn take_mail(stream: TcpStream, mails: &UnboundedSender<String>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut said, mut is_content) = (String::new(), false);
    stream.write_all(b"220 mail\r\n").await?;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        said.push_str(&line);
        let reply: &[u8] = match line.trim_end() {
            "." if is_content => {
                is_content = false;
                // The test may have ended.
                let _ = mails.send(std::mem::take(&mut said));
                b"250 taken\r\n"
            }
            _ if is_content => continue,
            "DATA" => {
                is_content = true;
                b"354 go on\r\n"
            }
            "QUIT" => b"221 bye\r\n",
            _ => b"250 ok\r\n",
        };
        stream.write_all(reply).await?;
    }
}

#[tokio::test]
async fn mails_have_the_links_of_an_invitation_and_of_a_forgotten_password() {
    let mut server = MailServer::start().await;
    let service = Service::builder()
        .env("WORKSPACE_AUTH__MODE", "accounts")
        .env("WORKSPACE_MAIL__HOST", "127.0.0.1")
        .env("WORKSPACE_MAIL__PORT", &server.port.to_string())
        .env("WORKSPACE_MAIL__TLS", "none")
        .env("WORKSPACE_MAIL__FROM", "Agents <agents@example.org>")
        .start()
        .await;
    let (root, id) = found_organization(&service).await;

    let path = format!("/api/organizations/{id}/members/invite");
    let body = json!({"emails": ["mia@example.org"], "role": "member"});
    let (status, made) = call(&root, Method::POST, &path, &body).await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(made["successful"][0]["email_delivery"], "sent", "{made}");
    let mail = server.next("mia@example.org").await;
    let mut mia = Browser::new(&service);
    let joined = enrol(&mut mia, &code_of(&mail, "/invite#"), "mia").await;
    assert_eq!(joined.expect("an answer").status(), StatusCode::SEE_OTHER);

    let known = service.run(&["users", "email", "mia", "mia@example.org"]);
    assert!(known.status.success(), "{known:?}");
    let mut stranger = Browser::new(&service);
    let form = [("name", "mia@example.org")];
    let asked = stranger.post("/password/forgot", &form).await;
    assert_eq!(asked.status(), StatusCode::OK);
    let mail = server.next("mia@example.org").await;
    let code = code_in(&mail);
    let set = stranger.set_password(&code, "another password").await;
    assert_eq!(set.expect("an answer").status(), StatusCode::SEE_OTHER);
    wait_for("the end of the old session", MAIL_TIMEOUT, || async {
        mia.who().await.is_none().then_some(())
    })
    .await;
    assert_eq!(stranger.who().await.expect("a session")["user_id"], "mia");
}
