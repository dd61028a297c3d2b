//! Forwarding to agent servers: which callers reach them, and with which key.

use std::net::SocketAddr;

use actix_web::dev::ServerHandle;
use actix_web::test::TestRequest;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use futures::{StreamExt as _, stream};
use http_api::Listener;
use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, TestResponse, UNKNOWN, World};

/// An agent server that echoes requests.
pub(crate) struct FakeAgentServer {
    pub(crate) at: SocketAddr,
    handle: ServerHandle,
}

async fn tell(req: HttpRequest, payload: web::Payload) -> HttpResponse {
    // The body after an upgrade has no end.
    let body = if req.headers().contains_key("upgrade") {
        web::Bytes::new()
    } else {
        payload.to_bytes().await.unwrap()
    };
    let header = |name: &str| {
        let value = req.headers().get(name);
        value.map(|value| value.to_str().unwrap().to_owned())
    };
    HttpResponse::Ok()
        .insert_header(("cache-control", "public, max-age=5, s-maxage=500"))
        .insert_header(("referrer-policy", "unsafe-url"))
        .insert_header(("set-cookie", "a=1"))
        .json(json!({
            "asked": format!("{} {}", req.method(), req.uri()),
            "key": header("x-session-api-key"),
            "bearer": header("authorization"),
            "cookie": header("cookie"),
            "id": header("x-request-id"),
            "type": header("content-type"),
            "forwarded": header("x-forwarded-host"),
            "body": String::from_utf8_lossy(&body),
        }))
}

/// A response without an end and without bytes.
async fn begin() -> HttpResponse {
    let begun = stream::iter([Ok::<_, std::io::Error>(web::Bytes::from_static(b"begun"))]);
    HttpResponse::Ok().streaming(begun.chain(stream::pending()))
}

impl FakeAgentServer {
    pub(crate) fn start() -> Self {
        let server = HttpServer::new(|| {
            App::new()
                .route("/{path:.*}/endless", web::get().to(begin))
                .route(
                    "/{path:.*}/silent",
                    web::get().to(std::future::pending::<HttpResponse>),
                )
                .route("/{path:.*}/refused", web::to(HttpResponse::Unauthorized))
                .default_service(web::to(tell))
        })
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

/// A conversation of Ada's, with the agent as its sandbox; and that sandbox's id and key.
pub(super) struct ForwardingFixture {
    pub(super) world: World,
    agent: FakeAgentServer,
    pub(super) conversation: String,
    sandbox: String,
    pub(super) key: String,
}

impl ForwardingFixture {
    pub(super) async fn set() -> Self {
        Self::of(World::working().await).await
    }

    async fn of(world: World) -> Self {
        let agent = FakeAgentServer::start();
        world.backend.set_port(agent.at.port());
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

    async fn ask(&self, path: &str, headers: &[(&str, &str)]) -> TestResponse {
        let mut request = TestRequest::get().uri(path);
        for header in headers {
            request = request.insert_header(*header);
        }
        self.world.send(request).await
    }

    pub(super) async fn end(self) {
        self.agent.handle.stop(false).await;
    }
}

const KEY: &str = "X-Session-API-Key";
const UPGRADE: [(&str, &str); 2] = [("Upgrade", "websocket"), ("Connection", "Upgrade")];

#[actix_web::test]
async fn a_sandbox_key_reaches_the_agent_server_and_no_service_routes() {
    let stage = ForwardingFixture::set().await;
    let (key, bearer) = (stage.key.as_str(), format!("Bearer {}", stage.key));
    for path in [
        "/api/tools/",
        "/api/settings",
        "/health",
        "/server_info",
        "/api/conversations?ids=a",
    ] {
        for header in [(KEY, key), ("Authorization", bearer.as_str())] {
            let echoed = stage.ask(path, &[header, ("Cookie", "c=1")]).await.ok();
            assert_eq!(echoed["asked"], format!("GET {path}"));
            assert_eq!(echoed["key"], key, "{path}");
            assert_eq!(
                (&echoed["bearer"], &echoed["cookie"]),
                (&Value::Null, &Value::Null)
            );
            assert!(echoed["id"].is_string(), "{echoed}");
        }
    }
    let by_query = format!("/api/tools/?path=%2Fa&session_api_key={key}");
    let echoed = stage.ask(&by_query, &[]).await.ok();
    assert_eq!(echoed["asked"], "GET /api/tools/?path=%2Fa");
    assert_eq!(echoed["key"], key);
    let request = TestRequest::post().uri("/api/bash/start_bash_command");
    let request = request.insert_header((KEY, key)).set_payload("text");
    let echoed = stage.world.send(request).await.ok();
    assert_eq!(echoed["body"], "text");
    // The SDK sends its user's key in addition to the sandbox's.
    let both = [(KEY, key), ("Authorization", "Bearer aw_ada")];
    let echoed = stage.ask("/api/tools/", &both).await.ok();
    assert_eq!(
        (&echoed["key"], &echoed["bearer"]),
        (&json!(key), &Value::Null)
    );
    let ours = format!("/api/v1/sandboxes/{}/settings/secrets", stage.sandbox);
    let answer = stage.ask(&ours, &[(KEY, key)]).await.ok();
    assert!(answer.get("asked").is_none(), "{answer}");
    stage.end().await;
}

/// The fake's sandboxes are not isolated: paths outside of the sandbox do not reach the agent server.
#[actix_web::test]
async fn file_paths_are_confined_to_unisolated_sandboxes() {
    let stage = ForwardingFixture::set().await;
    let header = [(KEY, stage.key.as_str())];
    let root = format!("/sandboxes/{}/workspace", stage.sandbox);
    let encoded = root.replace('/', "%2F");
    for (path, asked) in [
        (
            "/api/file/download?path=/workspace/a%20b&x=1".to_owned(),
            format!("/api/file/download?path={encoded}%2Fa+b&x=1"),
        ),
        (
            "/api/git/changes?path=%2Fworkspace%2Fproject&ref=HEAD".to_owned(),
            format!("/api/git/changes?path={encoded}&ref=HEAD"),
        ),
        (
            "/api/file/download//workspace/project/a%20b?x=1".to_owned(),
            format!("/api/file/download?x=1&path={encoded}%2Fa+b"),
        ),
        (
            format!("/api/git/diff/{encoded}%2Fa"),
            format!("/api/git/diff?path={encoded}%2Fa"),
        ),
        (
            "/api/git/changes/workspace".to_owned(),
            "/api/git/changes?path=workspace".to_owned(),
        ),
        (
            "/api/file/upload/%2Fworkspace%2Fa?path=b".to_owned(),
            format!("/api/file/upload?path={encoded}%2Fa"),
        ),
        ("/api/git/diff/".to_owned(), "/api/git/diff/".to_owned()),
        ("/api/file/home".to_owned(), "/api/file/home".to_owned()),
    ] {
        let echoed = stage.ask(&path, &header).await.ok();
        assert_eq!(echoed["asked"], format!("GET {asked}"), "{path}");
    }
    for path in [
        "/api/file/download?path=/etc/passwd",
        "/api/file/download?path=/workspace/a&path=/etc/passwd",
        "/api/file/download?p%61th=/etc/passwd",
        "/api/file/upload?path=/workspace/../../x",
        "/api/file/search_subdirs?path=/",
        "/api/file/upload//etc/passwd",
        "/api/file/download/%2Fetc%2Fpasswd",
        "/api/git/changes?path=..%2F..",
        "/api/git/commits/abc/changes?path=/etc",
    ] {
        let refused = stage.ask(path, &header).await;
        let detail = json!({"detail": "The path leads out of the workspace of this sandbox"});
        refused.is(404, &detail);
    }
    stage.end().await;
}

#[actix_web::test]
async fn a_user_key_forwards_to_the_users_own_conversations() {
    let stage = ForwardingFixture::set().await;
    let named = format!(
        "/api/conversations/{}/events/search?limit=1",
        stage.conversation
    );
    let by_query = format!("{named}&session_api_key={ADA}");
    let socket = format!("/sockets/events/{}", stage.conversation);
    let socket_by_query = format!("{socket}?session_api_key={ADA}");
    for (path, headers, asked) in [
        (&named, vec![(KEY, ADA)], &named),
        (&named, vec![("Authorization", "Bearer aw_ada")], &named),
        // Browsers cannot set headers on a socket.
        (&socket_by_query, UPGRADE.to_vec(), &socket),
    ] {
        let echoed = stage.ask(path, &headers).await.ok();
        assert_eq!(echoed["asked"], format!("GET {asked}"));
        assert_eq!(
            (&echoed["key"], &echoed["bearer"]),
            (&json!(stage.key), &Value::Null)
        );
    }
    // A page from the sandbox could leak this URL, with a key that gives access to more than the sandbox.
    for path in [&by_query, &socket_by_query] {
        stage.ask(path, &[]).await.refuses(401, "Unauthorized");
    }
    let not_found = |answer: TestResponse| answer.refuses(404, "Not Found");
    not_found(stage.ask(&named, &[(KEY, BOB)]).await);
    let unknown = format!("/api/conversations/{UNKNOWN}/events/search");
    not_found(stage.ask(&unknown, &[(KEY, ADA)]).await);
    // The path names no sandbox, and the service has the same path.
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
    let stage = ForwardingFixture::set().await;
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
    // Unknown, not running, foreign: all the same without a key.
    let unknown = format!("/sockets/events/{UNKNOWN}");
    assert_eq!(stage.ask(&unknown, &UPGRADE).await.status, 404);
    // Without a key, only a web socket reaches the agent server.
    let other = [("Upgrade", "x"), ("Connection", "Upgrade")];
    assert_eq!(stage.ask(&socket, &other).await.status, 401);
    let request = TestRequest::post().uri(&socket).set_payload("text");
    let request = UPGRADE
        .into_iter()
        .fold(request, TestRequest::insert_header);
    assert_eq!(stage.world.send(request).await.status, 401);
    let echoed = stage.ask(&socket, &UPGRADE).await.ok();
    assert_eq!(echoed["key"], Value::Null, "{echoed}");
    // The callback listener forwards nothing.
    let request = TestRequest::get()
        .uri("/api/tools/")
        .insert_header((KEY, stage.key.as_str()));
    let answer = stage.world.send_to(Listener::Callback, request).await;
    answer.refuses(404, "Not Found");
    stage.end().await;
}

#[actix_web::test]
async fn forwarded_responses_are_restricted_and_private() {
    let stage = ForwardingFixture::set().await;
    for (path, kept) in [
        ("/docs", "no-store"),
        ("/api/settings", "no-store"),
        ("/api/tools/", "max-age=5, private"),
    ] {
        let request = TestRequest::get()
            .uri(path)
            .insert_header((KEY, stage.key.as_str()));
        let answer = stage.world.open_as(request).await;
        assert_eq!(answer.status, 200, "{path}");
        let all = |name| -> Vec<_> {
            let values = answer.headers.get_all(name);
            values.map(|it| it.to_str().unwrap()).collect()
        };
        assert_eq!(all("cache-control"), [kept], "{path}");
        assert_eq!(all("referrer-policy"), ["no-referrer"], "{path}");
        let vary = all("vary").join(", ");
        assert!(vary.contains("X-Session-API-Key, Authorization"), "{vary}");
        let policy = all("content-security-policy").join(", ");
        assert!(
            policy.starts_with("sandbox; default-src 'none'"),
            "{policy}"
        );
    }
    stage.end().await;
}

#[actix_web::test]
async fn a_forwarded_response_ends_when_access_is_revoked() {
    let stage = ForwardingFixture::set().await;
    let made = stage.world.post(ADA, "/api/v1/keys", &json!({})).await;
    let made = made.json();
    let path = format!("/api/conversations/{}/endless", stage.conversation);
    let mut of_key = stage
        .world
        .open(made["key"].as_str().unwrap(), &path, None)
        .await;
    let mut of_sandbox = stage.world.open(&stage.key, &path, None).await;
    for opened in [&mut of_key, &mut of_sandbox] {
        assert_eq!(opened.next().await.as_deref(), Some("begun"));
    }
    let key = format!("/api/v1/keys/{}", made["record"]["id"].as_str().unwrap());
    stage.world.delete(ADA, &key).await;
    assert!(of_key.breaks_off().await, "its key is revoked");
    let pause = format!("/api/v1/sandboxes/{}/pause", stage.sandbox);
    stage.world.post(ADA, &pause, &json!({})).await.ok();
    assert!(of_sandbox.breaks_off().await, "its sandbox is paused");
    stage.end().await;
}

#[actix_web::test]
async fn a_sandbox_that_does_not_run_says_so() {
    let stage = ForwardingFixture::set().await;
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

/// A page of another origin must not act as the local user of a service in open mode, but may use the sandbox whose key it has.
#[actix_web::test]
async fn in_open_mode_a_foreign_page_needs_a_sandboxs_key() {
    let stage = ForwardingFixture::of(World::open_mode().await.at_work().await).await;
    let from = [
        ("Host", "127.0.0.1:3000"),
        ("Origin", "http://evil.example"),
    ];
    let with = |more: &[(&'static str, &'static str)]| [&from[..], more].concat();
    let named = format!("/api/conversations/{}/events/count", stage.conversation);
    let socket = format!("/sockets/events/{}", stage.conversation);
    let key = stage.key.clone().leak();
    let with_key = with(&[(KEY, key)]);
    for path in [&named, "/api/tools/", "/api/settings"] {
        let echoed = stage.ask(path, &with_key).await.ok();
        assert_eq!(echoed["key"], *key, "{path}");
        let refused = "Pages of this origin may not call a service in open mode; add the origin to http.cors_origins";
        stage.ask(path, &from).await.refuses(403, refused);
        let wrong = with(&[(KEY, "wrong")]);
        stage.ask(path, &wrong).await.refuses(403, refused);
    }
    // The service's own routes: neither with a sandbox's key nor with one in the query, which counts as none there.
    let own = format!("/api/v1/settings?session_api_key={key}");
    for path in ["/api/v1/settings", own.as_str(), "/"] {
        assert_eq!(stage.ask(path, &from).await.status, 403, "{path}");
    }
    assert_eq!(stage.ask("/api/v1/settings", &with_key).await.status, 403);
    let by_query = format!("{socket}?session_api_key={key}");
    let upgrade = with(&UPGRADE);
    assert_eq!(stage.ask(&by_query, &upgrade).await.ok()["key"], *key);
    // The agent server asks for the key in the first frame: the request is not the local user's.
    let unchecked = stage.ask(&socket, &upgrade).await.ok();
    assert_eq!(unchecked["key"], Value::Null);
    // A program, and the service's own pages, are the local user.
    let own_page = [from[0], ("Origin", "http://127.0.0.1:3000")];
    for headers in [&from[..1], &own_page] {
        assert_eq!(stage.ask(&named, headers).await.ok()["key"], *key);
    }
    stage.end().await;
}
