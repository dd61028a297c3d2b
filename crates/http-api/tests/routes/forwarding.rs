//! Requests that are for the agent server in a sandbox: who gets there, with which key, and who does not.

use std::net::SocketAddr;

use actix_web::dev::ServerHandle;
use actix_web::test::TestRequest;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use http_api::Door;
use serde_json::{Value, json};

use crate::fixture::{ADA, Answer, BOB, UNKNOWN, World};

/// An agent server that says what it was asked.
struct Agent {
    at: SocketAddr,
    handle: ServerHandle,
}

async fn tell(req: HttpRequest, body: web::Bytes) -> HttpResponse {
    let header = |name: &str| {
        let value = req.headers().get(name);
        value.map(|value| value.to_str().unwrap().to_owned())
    };
    HttpResponse::Ok()
        .insert_header(("cache-control", "max-age=5"))
        .insert_header(("set-cookie", "a=1"))
        .json(json!({
            "asked": format!("{} {}", req.method(), req.uri()),
            "key": header("x-session-api-key"),
            "bearer": header("authorization"),
            "cookie": header("cookie"),
            "id": header("x-request-id"),
            "body": String::from_utf8_lossy(&body),
        }))
}

impl Agent {
    fn start() -> Self {
        let server = HttpServer::new(|| App::new().default_service(web::to(tell)))
            .workers(1)
            .disable_signals()
            .bind("127.0.0.1:0")
            .unwrap();
        let at = server.addrs()[0];
        let server = server.run();
        let handle = server.handle();
        std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(server).unwrap();
        });
        Self { at, handle }
    }
}

/// A conversation of Ada's whose sandbox is at the agent, and that sandbox's id and key.
struct Stage {
    world: World,
    agent: Agent,
    conversation: String,
    sandbox: String,
    key: String,
}

impl Stage {
    async fn set() -> Self {
        let agent = Agent::start();
        let world = World::working().await;
        world.backend.start_at(agent.at.port());
        let conversation = world.conversation(ADA).await;
        let shown = world.read(ADA, &conversation).await;
        let text = |name: &str| shown[name].as_str().unwrap().to_owned();
        Self {
            agent,
            sandbox: text("sandbox_id"),
            key: text("session_api_key"),
            conversation,
            world,
        }
    }

    async fn ask(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = TestRequest::get().uri(path);
        for header in headers {
            request = request.insert_header(*header);
        }
        self.world.send(request).await
    }

    async fn end(self) {
        self.agent.handle.stop(false).await;
    }
}

const KEY: &str = "X-Session-API-Key";

#[actix_web::test]
async fn a_sandboxs_key_opens_its_agent_server_and_what_is_ours_stays_ours() {
    let stage = Stage::set().await;
    let (key, bearer) = (stage.key.as_str(), format!("Bearer {}", stage.key));
    for path in [
        "/api/tools/",
        "/api/settings",
        "/health",
        "/server_info",
        "/api/conversations?ids=a",
    ] {
        for header in [(KEY, key), ("Authorization", bearer.as_str())] {
            let told = stage.ask(path, &[header, ("Cookie", "c=1")]).await.ok();
            assert_eq!(told["asked"], format!("GET {path}"));
            assert_eq!(told["key"], key, "{path}");
            assert_eq!(
                (&told["bearer"], &told["cookie"]),
                (&Value::Null, &Value::Null)
            );
            assert!(told["id"].is_string(), "{told}");
        }
    }
    let by_query = format!("/api/file/download?path=%2Fa&session_api_key={key}");
    let told = stage.ask(&by_query, &[]).await.ok();
    assert_eq!(told["asked"], "GET /api/file/download?path=%2Fa");
    assert_eq!(told["key"], key);
    let request = TestRequest::post().uri("/api/bash/start_bash_command");
    let request = request.insert_header((KEY, key)).set_payload("text");
    let told = stage.world.send(request).await.ok();
    assert_eq!(told["body"], "text");
    // The SDK sends its user's key beside the sandbox's.
    let both = [(KEY, key), ("Authorization", "Bearer aw_ada")];
    let told = stage.ask("/api/tools/", &both).await.ok();
    assert_eq!((&told["key"], &told["bearer"]), (&json!(key), &Value::Null));
    let ours = format!("/api/v1/sandboxes/{}/settings/secrets", stage.sandbox);
    let answer = stage.ask(&ours, &[(KEY, key)]).await.ok();
    assert!(answer.get("asked").is_none(), "{answer}");
    stage.end().await;
}

#[actix_web::test]
async fn a_users_key_opens_what_names_their_own_conversation() {
    let stage = Stage::set().await;
    let named = format!(
        "/api/conversations/{}/events/search?limit=1",
        stage.conversation
    );
    let by_query = format!("{named}&session_api_key={ADA}");
    for (path, headers) in [
        (&named, vec![(KEY, ADA)]),
        (&named, vec![("Authorization", "Bearer aw_ada")]),
        (&by_query, vec![]),
    ] {
        let told = stage.ask(path, &headers).await.ok();
        assert_eq!(told["asked"], format!("GET {named}"));
        assert_eq!(
            (&told["key"], &told["bearer"]),
            (&json!(stage.key), &Value::Null)
        );
    }
    let not_found = |answer: Answer| answer.refuses(404, "Not Found");
    not_found(stage.ask(&named, &[(KEY, BOB)]).await);
    let unknown = format!("/api/conversations/{UNKNOWN}/events/search");
    not_found(stage.ask(&unknown, &[(KEY, ADA)]).await);
    // Nothing says which sandbox; and what we have under the same path is ours.
    not_found(stage.ask("/api/tools/", &[(KEY, ADA)]).await);
    let legacy = format!("/api/conversations/{}", stage.conversation);
    let shown = stage.ask(&legacy, &[(KEY, ADA)]).await.ok();
    assert_eq!(
        shown["conversation_id"],
        json!(stage.conversation),
        "{shown}"
    );
    assert!(stage.ask("/health", &[]).await.ok().get("asked").is_none());
    stage.end().await;
}

#[actix_web::test]
async fn other_keys_open_nothing() {
    let stage = Stage::set().await;
    let named = format!("/api/conversations/{}/run", stage.conversation);
    let socket = format!("/sockets/events/{}", stage.conversation);
    for path in ["/api/tools/", "/sockets/bash-events", &named, &socket] {
        stage
            .ask(path, &[(KEY, "wrong")])
            .await
            .refuses(401, "Unauthorized");
        let answer = stage.ask(path, &[]).await;
        assert_eq!(answer.status, 401, "{path}");
        assert!(answer.text.contains("session_api_key"), "{}", answer.text);
    }
    // Not found, not running, somebody's: all the same without a key.
    let upgrade = [("Upgrade", "websocket"), ("Connection", "Upgrade")];
    let answer = stage
        .ask(&format!("/sockets/events/{UNKNOWN}"), &upgrade)
        .await;
    assert_eq!(answer.status, 404);
    // The door for sandboxes leads nowhere else.
    let request = TestRequest::get()
        .uri("/api/tools/")
        .insert_header((KEY, stage.key.as_str()));
    let answer = stage.world.send_to(Door::Sandboxes, request).await;
    answer.refuses(404, "Not Found");
    stage.end().await;
}

#[actix_web::test]
async fn a_sandbox_that_does_not_run_says_so() {
    let stage = Stage::set().await;
    let pause = format!("/api/v1/sandboxes/{}/pause", stage.sandbox);
    stage.world.post(ADA, &pause, &json!({})).await.ok();
    let paused = "Sandbox is paused; resume it before calling its agent server.";
    let answer = stage.ask("/api/tools/", &[(KEY, &stage.key)]).await;
    answer.refuses(409, paused);
    let named = format!("/api/conversations/{}/run", stage.conversation);
    stage.ask(&named, &[(KEY, ADA)]).await.refuses(409, paused);
    stage
        .ask(&named, &[(KEY, BOB)])
        .await
        .refuses(404, "Not Found");
    stage.end().await;
}
