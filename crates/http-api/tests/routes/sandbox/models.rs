//! Model calls of sandboxes, through the service to an endpoint of this test.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::test::TestRequest;
use application::AuthMode;
use broker::{BrokerConfig, ModelBroker, PrivateHosts};
use domain::agent::LlmConfig;
use http_api::{HttpConfig, Listener};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, TestResponse, World};

pub(super) const CHAT: &str = "/llm/v1/chat/completions";
pub(super) const MESSAGES: &str = "/llm/v1/messages";

/// An endpoint that answers every request with the same bytes, and closes the connection.
pub(super) struct Endpoint {
    pub(super) base: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Endpoint {
    pub(super) fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::with(move |mut stream| {
            let _ = stream.write_all(&answer);
        })
    }

    /// It takes requests, and neither answers nor closes the connection.
    pub(super) fn silent() -> Self {
        let mut open = Vec::new();
        Self::with(move |stream| open.push(stream))
    }

    fn with(mut answer: impl FnMut(TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = read_request(&mut stream);
                seen.lock().unwrap().push(request);
                answer(stream);
            }
        });
        Self { base, requests }
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// The head and the body of a request.
fn read_request(stream: &mut TcpStream) -> String {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1);
            let length: Option<usize> =
                length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            let is_whole = match length {
                Some(length) => body.len() >= length,
                None => !head.contains("chunked") || body.ends_with("0\r\n\r\n"),
            };
            if is_whole {
                return text;
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return text,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}

pub(super) fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    )
}

/// A service that calls models.
pub(super) async fn world() -> World {
    let broker = ModelBroker::new(BrokerConfig {
        private_hosts: PrivateHosts::Allowed,
        max_request_bytes: 10_000,
        max_answer_bytes: 1_000_000,
        connect_timeout: Duration::from_secs(30),
        ..BrokerConfig::default()
    });
    let config = HttpConfig {
        models: Some(Arc::new(broker.unwrap())),
        ..HttpConfig::default()
    };
    World::build(config, AuthMode::ApiKey).await.at_work().await
}

/// Starts a conversation with this model; returns its id and the model that the sandbox gets.
pub(super) async fn launch(
    world: &World,
    user: &str,
    model: &str,
    base: &str,
) -> (String, LlmConfig) {
    let llm = json!({"model": model, "base_url": base, "api_key": "sk-real"});
    let settings = json!({"agent_settings_diff": {"llm": llm}});
    world.post(user, "/api/v1/settings", &settings).await.ok();
    let id = world.conversation(user).await;
    let launch = world.agents.launches().pop().unwrap();
    assert!(!format!("{launch:?}").contains("sk-real"));
    (id, launch.llm)
}

pub(super) fn token(llm: &LlmConfig) -> String {
    llm.api_key.as_ref().unwrap().expose_secret().to_owned()
}

pub(super) async fn call(world: &World, token: &str, path: &str) -> TestResponse {
    let request = TestRequest::post()
        .uri(path)
        .insert_header(("Authorization", format!("Bearer {token}")))
        .set_json(json!({"model": "m"}));
    world.send_to(Listener::Callback, request).await
}

#[actix_web::test]
async fn a_call_reaches_its_endpoint_with_the_key_and_nothing_else() {
    let stream = "data: {\"a\": 1}\n\ndata: [DONE]\n\n";
    let headers = "content-type: text/event-stream\r\nset-cookie: a=b\r\nx-request-id: up-1\r\nretry-after: 3\r\n";
    let endpoint = Endpoint::answering(answer("200 OK", headers, stream));
    let world = world().await;
    let (_, llm) = launch(&world, ADA, "openai/m", &format!("{}/v1", endpoint.base)).await;
    assert_eq!(
        llm.base_url.as_deref(),
        Some("http://127.0.0.1:3000/llm/v1")
    );
    let token = token(&llm);
    assert!(
        token.starts_with("mb_") && !token.contains("sk-real"),
        "{token}"
    );
    for listener in [Listener::Callback, Listener::Public] {
        let request = TestRequest::post()
            .uri(CHAT)
            .insert_header(("Authorization", format!("Bearer {token}")))
            .insert_header(("Cookie", "workspace=1"))
            .insert_header(("X-Session-API-Key", "abc"))
            .insert_header(("X-Forwarded-For", "10.9.8.7"))
            .set_json(json!({"model": "m"}));
        let answer = world.send_to(listener, request).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, stream));
        assert_eq!(answer.content_type, "text/event-stream");
        assert!(!answer.headers.contains_key("set-cookie"));
        assert_eq!(answer.headers.get("retry-after").unwrap(), "3");
    }
    for request in endpoint.requests() {
        let lower = request.to_ascii_lowercase();
        assert!(
            lower.starts_with("post /v1/chat/completions http/1.1\r\n"),
            "{request}"
        );
        assert!(
            lower.contains("authorization: bearer sk-real\r\n"),
            "{request}"
        );
        assert!(request.ends_with("{\"model\":\"m\"}"), "{request}");
        for stays in ["mb_", "cookie", "session", "forwarded", "10.9.8.7"] {
            assert!(!lower.contains(stays), "{stays}: {request}");
        }
    }
    assert_eq!(endpoint.requests().len(), 2);
}

#[actix_web::test]
async fn messages_have_the_key_in_their_own_header() {
    let endpoint = Endpoint::answering(answer("429 Too Many Requests", "", "{\"busy\": 1}"));
    let world = world().await;
    let (_, llm) = launch(&world, ADA, "anthropic/m", &endpoint.base).await;
    assert_eq!(llm.base_url.as_deref(), Some("http://127.0.0.1:3000/llm"));
    let request = TestRequest::post()
        .uri(MESSAGES)
        .insert_header(("x-api-key", token(&llm)))
        .insert_header(("anthropic-version", "2023-06-01"))
        .set_json(json!({}));
    let answer = world.send_to(Listener::Callback, request).await;
    assert_eq!(
        (answer.status, answer.text.as_str()),
        (429, "{\"busy\": 1}")
    );
    let request = endpoint.requests().pop().unwrap().to_ascii_lowercase();
    assert!(
        request.starts_with("post /v1/messages http/1.1\r\n"),
        "{request}"
    );
    assert!(request.contains("x-api-key: sk-real\r\n"), "{request}");
    assert!(
        request.contains("anthropic-version: 2023-06-01\r\n"),
        "{request}"
    );
    assert!(!request.contains("authorization"), "{request}");
}

#[actix_web::test]
async fn generated_content_has_the_model_in_its_path_and_the_key_in_its_own_header() {
    let endpoint = Endpoint::answering(answer("200 OK", "", "{}"));
    let world = world().await;
    let base = format!("{}/v1beta", endpoint.base);
    let (_, llm) = launch(&world, ADA, "gemini/gemini-2.5-pro", &base).await;
    assert_eq!(
        llm.base_url.as_deref(),
        Some("http://127.0.0.1:3000/llm/v1")
    );
    let path = "/v1/models/gemini-2.5-pro:streamGenerateContent?alt=sse";
    let ask = |key: &str| {
        let request = TestRequest::post().uri(&format!("/llm{path}"));
        request
            .insert_header(("x-goog-api-key", key))
            .set_json(json!({"contents": []}))
    };
    let answer = world.send_to(Listener::Callback, ask(&token(&llm))).await;
    assert_eq!((answer.status, answer.text.as_str()), (200, "{}"));
    let sent = endpoint.requests().pop().unwrap().to_ascii_lowercase();
    let line = "post /v1beta/models/gemini-2.5-pro:streamgeneratecontent?alt=sse http/1.1\r\n";
    assert!(sent.starts_with(line), "{sent}");
    assert!(sent.contains("x-goog-api-key: sk-real\r\n"), "{sent}");
    let refused = world.send_to(Listener::Callback, ask("wrong")).await;
    let error = &refused.json()["error"];
    assert_eq!(
        (&error["code"], &error["status"]),
        (&json!(401), &json!("UNAUTHENTICATED"))
    );
}

#[actix_web::test]
async fn other_paths_tokens_and_states_are_refused_in_the_form_of_the_provider() {
    let endpoint = Endpoint::answering(answer("200 OK", "", "{}"));
    let world = world().await;
    let (id, llm) = launch(&world, ADA, "openai/m", &endpoint.base).await;
    let (_, others) = launch(&world, BOB, "openai/m", &endpoint.base).await;
    let (mine, others) = (token(&llm), token(&others));
    let kind = |answer: &TestResponse| answer.json()["error"]["type"].clone();
    for (path, status, expected) in [
        ("/llm/v1/files", 404, "not_found_error"),
        ("/llm/v1/chat/completions/", 404, "not_found_error"),
        ("/llm/v1/%2e%2e/v1/chat/completions", 404, "not_found_error"),
        (MESSAGES, 404, "not_found_error"),
    ] {
        let answer = call(&world, &mine, path).await;
        assert_eq!(
            (answer.status, kind(&answer)),
            (status, json!(expected)),
            "{path}"
        );
    }
    let get = TestRequest::get()
        .uri(CHAT)
        .insert_header(("Authorization", format!("Bearer {mine}")));
    assert_eq!(world.send_to(Listener::Callback, get).await.status, 405);

    // A token of one sandbox is none of another.
    let (sandbox, _) = mine.split_once('.').unwrap();
    let (_, content) = others.split_once('.').unwrap();
    let mixed = format!("{sandbox}.{content}");
    for wrong in ["", "mb_", "mb_x.y", ADA, &mixed, &mine[..mine.len() - 1]] {
        let answer = call(&world, wrong, CHAT).await;
        assert_eq!(
            (answer.status, kind(&answer)),
            (401, json!("authentication_error"))
        );
        let answer = call(&world, wrong, MESSAGES).await;
        assert_eq!(answer.json()["type"], "error");
    }
    assert_eq!(endpoint.requests().len(), 0);

    // While the sandbox is paused, its token is good for nothing; that of another sandbox stays good.
    let sandbox = world.read(ADA, &id).await["sandbox_id"].clone();
    let path = format!("/api/v1/sandboxes/{}/", sandbox.as_str().unwrap());
    world
        .post(ADA, &format!("{path}pause"), &json!({}))
        .await
        .ok();
    let answer = call(&world, &mine, CHAT).await;
    assert_eq!(
        (answer.status, kind(&answer)),
        (403, json!("permission_error"))
    );
    assert_eq!(call(&world, &others, CHAT).await.status, 200);
    world
        .post(ADA, &format!("{path}resume"), &json!({}))
        .await
        .ok();
    assert_eq!(call(&world, &mine, CHAT).await.status, 200);
    assert_eq!(endpoint.requests().len(), 2);
}

#[actix_web::test]
async fn an_endpoint_that_misbehaves_gets_no_second_request() {
    for (bytes, status) in [
        (
            answer("302 Found", "location: http://127.0.0.1:1/\r\n", ""),
            502,
        ),
        ("nonsense".to_owned(), 502),
        (String::new(), 502),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
            502,
        ),
    ] {
        let endpoint = Endpoint::answering(bytes.clone());
        let world = world().await;
        let (_, llm) = launch(&world, ADA, "openai/m", &endpoint.base).await;
        let answer = call(&world, &token(&llm), CHAT).await;
        assert_eq!(answer.status, status, "{bytes}: {}", answer.text);
        assert!(!answer.text.contains("sk-real") && !answer.text.contains("mb_"));
        assert!(!answer.headers.contains_key("location"));
        assert_eq!(endpoint.requests().len(), 1, "{bytes}");
    }
}

#[actix_web::test]
async fn requests_and_answers_are_bounded() {
    let endless = format!(
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}",
        "x".repeat(1_100_000)
    );
    let endpoint = Endpoint::answering(endless);
    let world = world().await;
    let (_, llm) = launch(&world, ADA, "openai/m", &endpoint.base).await;
    let request = |bytes: usize| {
        TestRequest::post()
            .uri(CHAT)
            .insert_header(("Authorization", format!("Bearer {}", token(&llm))))
            .set_payload("x".repeat(bytes))
    };
    let large = request(10_001).insert_header(("Content-Length", "10001"));
    let answer = world.send_to(Listener::Callback, large).await;
    assert_eq!(
        (answer.status, endpoint.requests().len()),
        (413, 0),
        "{}",
        answer.text
    );
    let fine = request(10_000).insert_header(("Content-Length", "10000"));
    let body = world.open_as(fine).await.body;
    let whole = actix_web::body::to_bytes(body).await;
    assert!(whole.is_err(), "the answer breaks off");
}

#[actix_web::test]
async fn a_model_that_only_the_sandbox_can_call_keeps_its_key_with_a_note() {
    let world = world().await;
    let llm = json!({"model": "vertex_ai/gemini-2.5-pro", "api_key": "sk-real"});
    let settings = json!({"agent_settings_diff": {"llm": llm}});
    world.post(ADA, "/api/v1/settings", &settings).await.ok();
    let task = world.start(ADA, &json!({})).await;
    let launch = world.agents.launches().pop().unwrap();
    assert_eq!(token(&launch.llm), "sk-real");
    assert_eq!(launch.llm.base_url, None);
    let note = "The key of the model vertex_ai/gemini-2.5-pro is inside the sandbox, because the service does not call models \
                of vertex_ai.";
    assert!(task.to_string().contains(note), "{task}");
}

#[actix_web::test]
async fn profiles_and_switches_have_tokens_and_the_session_key_fetches_no_key() {
    let endpoint = Endpoint::answering(answer("200 OK", "", "{}"));
    let world = world().await;
    let profile =
        json!({"llm": {"model": "openai/fast", "base_url": endpoint.base, "api_key": "sk-fast"}});
    let saved = world
        .post(ADA, "/api/v1/settings/profiles/fast", &profile)
        .await;
    assert!(saved.status < 300, "{}", saved.text);
    let (id, _) = launch(&world, ADA, "openai/m", &endpoint.base).await;
    let profiles = world.agents.profiles();
    let fast = profiles
        .iter()
        .find(|profile| profile.name == "fast")
        .unwrap();
    assert!(!format!("{profiles:?}").contains("sk-fast"));
    assert_eq!(call(&world, &token(&fast.llm), CHAT).await.status, 200);
    let request = endpoint.requests().pop().unwrap();
    assert!(request.contains("Bearer sk-fast"), "{request}");

    let key = world.read(ADA, &id).await["session_api_key"].clone();
    let ask = |bearer: &str| {
        let request = TestRequest::get()
            .uri("/api/v1/users/me?expose_secrets=true")
            .insert_header(("X-Session-API-Key", key.as_str().unwrap()));
        if bearer.is_empty() {
            return request;
        }
        request.insert_header(("Authorization", format!("Bearer {bearer}")))
    };
    for stranger in ["", BOB, key.as_str().unwrap()] {
        let refused = world.send(ask(stranger)).await;
        assert_eq!(refused.status, 401, "{stranger}: {}", refused.text);
    }
    let shown: Value = world.send(ask(ADA)).await.ok();
    assert_eq!(shown["llm_api_key"], "sk-real");
}
