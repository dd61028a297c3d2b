//! Tokens that are tried out before they are stored.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use acceptance::{Client, Service};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Five seconds are promised; the rest is for a busy machine.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

/// Answers every request that carries the token `good` with a user, others with 401, and none if it is silent.
struct Provider {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
    async fn start(is_silent: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        tokio::spawn(async move {
            // Kept open: a closed connection would be an answer.
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
                // Before the answer: whoever has that counts the heads.
                seen.lock().expect("no panic").push(head.clone());
                if !is_silent {
                    let _ = socket.write_all(answer(&head).as_bytes()).await;
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

fn answer(head: &str) -> String {
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

async fn verifying() -> (Service, Client) {
    let builder = Service::builder()
        .env("WORKSPACE_GIT__VERIFY_TOKENS", "true")
        .env("WORKSPACE_GIT__ALLOW_PRIVATE_HOSTS", "127.0.0.1");
    let service = builder.start().await;
    let user = service.admin();
    (service, user)
}

async fn set(user: &Client) -> Value {
    user.get("/api/settings").await.ok()["provider_tokens_set"].clone()
}

#[tokio::test]
async fn each_token_is_shown_to_its_own_provider_and_kept_unless_that_refuses_it() {
    let (gitlab, forgejo) = (Provider::start(false).await, Provider::start(false).await);
    let (_service, user) = verifying().await;
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
    assert_eq!(set(&user).await, json!({}), "all or nothing");

    let _ = user.post(path, &tokens("good-gl", "good-fj")).await.ok();
    let stored = json!({"forgejo": forgejo.url, "gitlab": gitlab.url});
    assert_eq!(set(&user).await, stored);
    // What is kept is shown to nobody again.
    let asked = (gitlab.heads().len(), forgejo.heads().len());
    let _ = user.post(path, &tokens("", "")).await.ok();
    assert_eq!((gitlab.heads().len(), forgejo.heads().len()), asked);
    let (at_gitlab, at_forgejo) = (gitlab.heads().concat(), forgejo.heads().concat());
    assert!(at_gitlab.contains("good-gl") && at_forgejo.contains("good-fj"));
    assert!(!at_gitlab.contains("-fj") && !at_forgejo.contains("-gl"));
}

#[tokio::test]
async fn a_silent_provider_is_no_obstacle_and_a_private_address_is_one() {
    let silent = Provider::start(true).await;
    let (service, user) = verifying().await;
    let path = "/api/v1/secrets/git-providers";
    let token =
        |host: &str| json!({"provider_tokens": {"gitlab": {"token": "t0p-token", "host": host}}});
    let began = Instant::now();
    let _ = user.post(path, &token(&silent.url)).await.ok();
    assert!(began.elapsed() < RETRY_TIMEOUT, "{:?}", began.elapsed());
    assert_eq!(set(&user).await, json!({"gitlab": silent.url}));
    assert_eq!(silent.heads().len(), 1);
    let refused = user.post(path, &token("http://127.0.0.2:9")).await;
    assert_eq!(refused.status, 422, "{}", refused.text);
    let loc = json!(["body", "provider_tokens", "gitlab", "host"]);
    assert_eq!(refused.body["detail"][0]["loc"], loc);
    assert_eq!(set(&user).await, json!({"gitlab": silent.url}));
    assert!(!service.log().contains("t0p-token"));
}
