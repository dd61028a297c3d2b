//! A pull request that the agent opens with the service's own MCP server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::support::{Setup, tool_outputs, wait_for_events};

const TOKEN: &str = "ghp-canary-of-pull-requests";
const ADDRESS: &str = "https://git.example.com/acme/tools/pull/7";

/// Head and body of each request.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// A fake GitHub API that responds to every request with pull request 7.
fn github() -> (u16, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let request = serve_connection(stream).expect("a whole request");
            log.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(request);
        }
    });
    (port, asked)
}

fn serve_connection(mut stream: TcpStream) -> std::io::Result<(String, Value)> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let lower = head.to_lowercase();
    let length = lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![
        0;
        length
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0)
    ];
    reader.read_exact(&mut body)?;
    let answer = json!({"number": 7, "html_url": ADDRESS}).to_string();
    let length = answer.len();
    write!(
        stream,
        "HTTP/1.1 201 Created\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{answer}"
    )?;
    Ok((head, serde_json::from_slice(&body).unwrap_or_default()))
}

pub(crate) async fn the_agent_opens_one(setup: Setup) {
    let (port, asked) = github();
    let llm = setup.sandboxing.model().await;
    let service = setup
        .service()
        .env("WORKSPACE_GIT__ALLOW_PRIVATE_HOSTS", "127.0.0.1")
        .start()
        .await;
    let user = service.admin();
    user.use_model("openai/scripted", &llm.base_url(), "sk-scripted")
        .await;
    let host = format!("http://127.0.0.1:{port}");
    let tokens = json!({"provider_tokens": {"github": {"token": TOKEN, "host": host}}});
    let _ = user
        .post("/api/v1/secrets/git-providers", &tokens)
        .await
        .ok();

    let arguments = json!({"repo_name": "acme/tools", "source_branch": "fix", "target_branch": "main", "title": "Fix it",
        "body": "It was broken."});
    let ask = format!("Please.\nTOOL: create_pr {arguments}");
    let task = user.start_with(&ask).await;
    let conversation = user.wait_until_ready(&task).await;
    let ended = user.task(&task.id).await;
    assert_eq!(ended.detail, None, "nothing to note about our own server");
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;
    let found = |events: &[Value]| tool_outputs(events).contains(ADDRESS);
    let events = wait_for_events(&user, &conversation.id, "the address of it", found).await;

    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    let [(head, body)] = asked.as_slice() else {
        panic!("not asked once: {asked:?}");
    };
    assert!(
        head.starts_with("POST /api/v3/repos/acme/tools/pulls "),
        "{head}"
    );
    assert!(head.contains(&format!("Bearer {TOKEN}")), "{head}");
    assert_eq!(
        (&body["head"], &body["draft"]),
        (&json!("fix"), &json!(true))
    );
    let key = conversation.session_api_key.expect("a key");
    let events = json!(events).to_string();
    for secret in [TOKEN, &key] {
        assert!(!events.contains(secret), "in an event");
        assert!(!service.log().contains(secret), "in the log");
    }
}
