//! Verification of tokens before they are stored.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use acceptance::{Client, Service};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Deadline of a request to a silent provider: far longer than a busy machine needs.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

/// A provider that answers requests with a token `good…` with a user, others with 401, or none if it is silent.
struct Provider {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    #[expect(clippy::disallowed_methods, reason = "the task ends with the test")]
    async fn start(is_silent: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&heads);
        tokio::spawn(async move {
            // Open connections: closing one would be a response.
            let mut open = Vec::new();
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut head = Vec::new();
                let mut buffer = [0; 4096];
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    match socket.read(&mut buffer).await {
                        Ok(read) if read > 0 => head.extend_from_slice(&buffer[..read]),
                        _ => break,
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                // Before the response, after which the test counts the heads.
                received.lock().expect("no panic").push(head.clone());
                if !is_silent {
                    let _ = socket.write_all(response(&head).as_bytes()).await;
                }
                open.push(socket);
            }
        });
        let url = format!("http://{address}");
        Self { url, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no panic").clone()
    }
}

fn response(head: &str) -> String {
    let user = json!({"id": 7, "username": "ada", "login": "ada", "avatar_url": ""});
    let (status, body) = if head.contains("good") {
        ("200 OK", user)
    } else {
        ("401 Unauthorized", json!({"message": "401 Unauthorized"}))
    };
    let (body, line) = (body.to_string(), "content-type: application/json");
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{line}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

async fn start_service() -> (Service, Client) {
    let builder = Service::builder()
        .env("WORKSPACE_GIT__VERIFY_TOKENS", "true")
        .env("WORKSPACE_GIT__ALLOW_PRIVATE_HOSTS", "127.0.0.1");
    let service = builder.start().await;
    let user = service.admin();
    (service, user)
}

async fn stored_tokens(user: &Client) -> Value {
    user.get("/api/settings").await.ok()["provider_tokens_set"].clone()
}

#[tokio::test]
async fn each_token_is_verified_at_its_own_provider_only() {
    let (gitlab, forgejo) = (Provider::start(false).await, Provider::start(false).await);
    let (_service, user) = start_service().await;
    let path = "/api/add-git-providers";
    let tokens = |gitlab_token: &str, forgejo_token: &str| {
        json!({"provider_tokens": {
            "gitlab": {"token": gitlab_token, "host": gitlab.url},
            "forgejo": {"token": forgejo_token, "host": forgejo.url},
        }})
    };
    let refused = user.post(path, &tokens("bad-gl", "good-fj")).await;
    assert_eq!(refused.status, 401, "{}", refused.text);
    let text = "Invalid token. Please make sure it is a valid gitlab token.";
    let item = json!({"loc": ["body", "provider_tokens", "gitlab", "token"], "msg": text, "type": "invalid_token"});
    assert_eq!(refused.body["error"], text);
    assert_eq!(refused.body["detail"], json!([item]));
    assert!(!refused.text.contains("bad-gl"));
    assert_eq!(
        stored_tokens(&user).await,
        json!({}),
        "all tokens are stored, or none"
    );

    let _ = user.post(path, &tokens("good-gl", "good-fj")).await.ok();
    let stored = json!({"forgejo": forgejo.url, "gitlab": gitlab.url});
    assert_eq!(stored_tokens(&user).await, stored);
    // Kept tokens are not verified again.
    let requests = (gitlab.heads().len(), forgejo.heads().len());
    let _ = user.post(path, &tokens("", "")).await.ok();
    assert_eq!((gitlab.heads().len(), forgejo.heads().len()), requests);
    let (at_gitlab, at_forgejo) = (gitlab.heads().concat(), forgejo.heads().concat());
    assert!(at_gitlab.contains("good-gl") && at_forgejo.contains("good-fj"));
    assert!(!at_gitlab.contains("-fj") && !at_forgejo.contains("-gl"));
}

#[tokio::test]
async fn a_token_of_a_silent_provider_is_stored_and_a_private_address_is_refused() {
    let silent = Provider::start(true).await;
    let (service, user) = start_service().await;
    let path = "/api/v1/secrets/git-providers";
    let token =
        |host: &str| json!({"provider_tokens": {"gitlab": {"token": "t0p-token", "host": host}}});
    let body = token(&silent.url);
    let stored = tokio::time::timeout(WAIT_TIMEOUT, user.post(path, &body)).await;
    let stored = stored
        .expect("the service does not wait for the provider")
        .ok();
    let note = "gitlab did not answer, so its token is stored without a check.";
    assert_eq!(stored["notes"], json!([note]));
    assert_eq!(stored_tokens(&user).await, json!({"gitlab": silent.url}));
    assert_eq!(silent.heads().len(), 1);
    let refused = user.post(path, &token("http://127.0.0.2:9")).await;
    assert_eq!(refused.status, 422, "{}", refused.text);
    let loc = json!(["body", "provider_tokens", "gitlab", "host"]);
    assert_eq!(refused.body["detail"][0]["loc"], loc);
    assert_eq!(stored_tokens(&user).await, json!({"gitlab": silent.url}));
    assert!(!service.log().contains("t0p-token"));
}
