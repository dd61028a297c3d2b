//! Hosts of git providers that users name: which ones the service calls, and with which token.

use std::sync::{Arc, Mutex, PoisonError};

use acceptance::{Client, Service};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const ALLOW_PRIVATE_HOSTS: &str = "WORKSPACE_GIT__ALLOW_PRIVATE_HOSTS";
const TOKEN: &str = "glpat-canary-of-this-test";
const REPOSITORIES: &str = "/api/v1/git/repositories/search?provider=gitlab";
const REPOSITORY_COUNT: usize = 25;

/// A fake GitLab in this process.
struct Gitlab {
    port: u16,
    request_heads: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Gitlab {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("cannot bind a free port");
        let port = listener
            .local_addr()
            .expect("the listener has no address")
            .port();
        let request_heads = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&request_heads);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    if socket.read_buf(&mut head).await.unwrap_or(0) == 0 {
                        break;
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let answer = response_to(&head);
                seen.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(head);
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        Self {
            port,
            request_heads,
            _tasks: tasks,
        }
    }

    fn request_heads(&self) -> Vec<String> {
        self.request_heads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn response_to(head: &str) -> String {
    let target = head.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let number = |name: &str| -> usize {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let found = pairs.find(|(key, _)| *key == name);
        found.and_then(|(_, text)| text.parse().ok()).unwrap_or(1)
    };
    let (mut status, mut next, mut body) = ("200 OK", String::new(), json!({}));
    if !head.contains(TOKEN) {
        status = "401 Unauthorized";
    } else if path == "/api/v4/projects" {
        let from = (number("page") - 1) * number("per_page");
        let numbers = from..REPOSITORY_COUNT.min(from + number("per_page"));
        if numbers.end < REPOSITORY_COUNT {
            next = (number("page") + 1).to_string();
        }
        let project =
            |n| json!({"id": n, "path_with_namespace": format!("g/r{n}"), "visibility": "private"});
        body = numbers.map(project).collect();
    } else if path == "/api/v4/user" {
        body = json!({"id": 1, "username": "ada", "avatar_url": null});
    } else {
        status = "404 Not Found";
    }
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status}\r\nx-next-page: {next}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

async fn store_token(user: &Client, host: &str, token: &str) {
    let body = json!({"provider_tokens": {"gitlab": {"token": token, "host": host}}});
    let stored = user.post("/api/v1/secrets/git-providers", &body).await;
    let _ = stored.ok();
}

#[tokio::test]
async fn private_host_is_not_called_unless_the_operator_allows_it() {
    let gitlab = Gitlab::start().await;
    let service = Service::start().await;
    let user = service.admin();
    for host in [
        format!("http://127.0.0.1:{}", gitlab.port),
        format!("https://127.0.0.1:{}", gitlab.port),
        format!("http://localhost:{}", gitlab.port),
        format!("https://localhost:{}", gitlab.port),
        format!("http://[::ffff:127.0.0.1]:{}", gitlab.port),
        "https://169.254.169.254".to_owned(),
        "https://10.0.0.1".to_owned(),
    ] {
        store_token(&user, &host, TOKEN).await;
        for path in [REPOSITORIES, "/api/v1/users/git-info"] {
            let refused = user.get(path).await;
            assert_eq!(refused.status, 400, "{host} {path}: {}", refused.text);
            let detail = refused.body["detail"].as_str().unwrap_or_default();
            assert!(detail.contains("is not allowed"), "{detail}");
        }
        let tasks = user.get("/api/v1/git/suggested-tasks/search").await.ok();
        assert_eq!(tasks["items"], json!([]));
    }
    assert_eq!(
        gitlab.request_heads(),
        Vec::<String>::new(),
        "a private host was called"
    );
    assert!(!service.log().contains(TOKEN));
}

#[tokio::test]
async fn allowed_host_is_called_with_its_own_token() {
    let gitlab = Gitlab::start().await;
    let service = Service::builder()
        .env(ALLOW_PRIVATE_HOSTS, "127.0.0.1,other.example.com")
        .start()
        .await;
    let user = service.admin();
    let host = format!("http://127.0.0.1:{}", gitlab.port);
    store_token(&user, &host, TOKEN).await;
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = user
            .get(&format!("{REPOSITORIES}&limit=10{after}"))
            .await
            .ok();
        let items = page["items"].as_array().cloned().unwrap_or_default();
        seen.extend(items.iter().map(|item| item["full_name"].clone()));
        let Some(next) = page["next_page_id"].as_str() else {
            break;
        };
        after = format!("&page_id={next}");
    }
    let expected: Vec<Value> = (0..REPOSITORY_COUNT)
        .map(|n| json!(format!("g/r{n}")))
        .collect();
    assert_eq!(seen, expected);
    assert_eq!(
        user.get("/api/v1/users/git-info").await.ok()["login"],
        "ada"
    );
    let foreign = user.get(&format!("{REPOSITORIES}&page_id=Mg")).await;
    assert_eq!(
        (foreign.status, &foreign.body["detail"][0]["loc"]),
        (422, &json!(["query", "page_id"]))
    );
    let heads = gitlab.request_heads();
    assert!(
        heads
            .iter()
            .all(|head| head.contains(&format!("Bearer {TOKEN}")))
    );
    // Another user has no token, and the host refuses this user's next token.
    let other = service.user("bob").get(REPOSITORIES).await;
    assert_eq!(other.status, 403, "{}", other.text);
    store_token(&user, &host, "glpat-revoked").await;
    let refused = user.get(REPOSITORIES).await;
    assert_eq!(
        (refused.status, refused.text.as_str()),
        (401, "\"Invalid gitlab token\"")
    );
    assert!(!service.log().contains(TOKEN) && !service.log().contains("glpat-revoked"));
}

#[tokio::test]
async fn invalid_git_settings_prevent_the_start() {
    for (name, value) in [
        (ALLOW_PRIVATE_HOSTS, "http://git.example.com"),
        (ALLOW_PRIVATE_HOSTS, "10.0.0.0/33"),
        ("WORKSPACE_GIT__CA_FILE", "/does/not/exist.pem"),
        ("WORKSPACE_GIT__TIMEOUT", "soon"),
    ] {
        let data = tempfile::tempdir().expect("cannot create a temporary directory");
        let output = Service::builder()
            .env(name, value)
            .start_expecting_failure(data.path())
            .await;
        assert!(output.contains(name), "{output}");
    }
}
