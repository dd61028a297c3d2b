//! The automations service: whose requests reach it, with which key, and what its keys open.

mod values;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use actix_web::test::TestRequest;
use application::AuthMode;
use domain::id::{ApiKeyId, OrganizationId, UserId};
use endpoint_guard::Unguarded;
use futures::poll;
use http_api::{
    AddressConfig, AutomationsSite, AutomationsStatus, Gateway, GatewayLimits, HttpConfig, Listener,
};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::yield_now;

use crate::fixture::{ADA, BOB, TestResponse, UNKNOWN, World};
use crate::sandbox::forwarding::FakeAgentServer;

const SERVICE_KEY: &str = "service-key";
const INTERNAL_URL: &str = "http://127.0.0.2:26229";

/// A service whose automations service echoes requests.
struct AutomationsFixture {
    world: World,
    wanted: Arc<Notify>,
    status: watch::Sender<AutomationsStatus>,
    ended: mpsc::Receiver<ApiKeyId>,
}

impl AutomationsFixture {
    async fn new(mode: AuthMode) -> Self {
        let server = FakeAgentServer::start();
        let url = format!("http://{}", server.at).parse().unwrap();
        let (status, receiver) = watch::channel(AutomationsStatus::Running(url));
        let wanted = Arc::<Notify>::default();
        let (run_ends, ended) = mpsc::channel(1);
        let site = AutomationsSite {
            status: receiver,
            wanted: Arc::clone(&wanted),
            run_ends,
            name: "automations".into(),
            gateway: Gateway::new(GatewayLimits::default(), Arc::new(Unguarded)),
            service_key: SERVICE_KEY.into(),
            internal_url: INTERNAL_URL.to_owned(),
        };
        let config = HttpConfig {
            automations: Some(site),
            addresses: AddressConfig {
                public_url: Some("https://agents.example".parse().unwrap()),
                ..AddressConfig::default()
            },
            ..HttpConfig::default()
        };
        let world = World::build(config, mode).await;
        Self {
            world,
            wanted,
            status,
            ended,
        }
    }

    /// What reaches the automations service of a request with this user's key.
    async fn echo(&self, key: &str) -> Value {
        self.world.get(key, "/api/automation/v1?limit=1").await.ok()
    }

    /// The key that the automations service gets with a request of this user.
    async fn request_key(&self, key: &str) -> String {
        let echoed = self.echo(key).await;
        let bearer = echoed["bearer"].as_str().unwrap();
        bearer.strip_prefix("Bearer ").unwrap().to_owned()
    }

    async fn ask(&self, listener: Listener, key: &str, request: TestRequest) -> TestResponse {
        let bearer = ("Authorization", format!("Bearer {key}"));
        self.world
            .send_to(listener, request.insert_header(bearer))
            .await
    }

    /// Asks as the automations service does.
    async fn get(&self, key: &str, path: &str) -> TestResponse {
        let request = TestRequest::get().uri(path);
        self.ask(Listener::Automations, key, request).await
    }

    async fn issue(&self, service_key: &str, user: &str, organization: &str) -> TestResponse {
        let path = format!("/api/service/users/{user}/orgs/{organization}/api-keys");
        let request = TestRequest::post()
            .uri(&path)
            .insert_header(("X-Service-API-Key", service_key))
            .set_json(json!({"name": "automation"}));
        self.world.send_to(Listener::Automations, request).await
    }
}

fn id_of(name: &str) -> String {
    OrganizationId::personal(&UserId::parse(name).unwrap()).to_string()
}

#[actix_web::test]
async fn users_requests_carry_a_key_of_the_automations_service_and_never_their_own() {
    let fixture = AutomationsFixture::new(AuthMode::ApiKey).await;
    let request = TestRequest::post()
        .uri("/api/automation/v1/preset/prompt?a=1")
        .insert_header(("X-Session-API-Key", ADA))
        .insert_header(("Cookie", "session=secret"))
        .insert_header(("X-Request-Id", "request-1"))
        .insert_header(("Content-Type", "application/json"))
        .set_payload(r#"{"name": "x"}"#);
    let echoed = fixture.world.send(request).await.ok();
    assert_eq!(echoed["asked"], "POST /api/automation/v1/preset/prompt?a=1");
    assert_eq!(echoed["body"], r#"{"name": "x"}"#);
    assert_eq!(
        (&echoed["key"], &echoed["cookie"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(echoed["id"], "request-1");
    assert!(!echoed.to_string().contains(ADA), "{echoed}");

    let key = fixture.request_key(ADA).await;
    assert_eq!(fixture.request_key(ADA).await, key, "one key for some time");
    assert_ne!(fixture.request_key(BOB).await, key);
    let me = fixture.get(&key, "/api/v1/users/me").await.ok();
    let id = id_of("ada");
    assert_eq!((&me["id"], &me["org_id"]), (&json!(id), &json!(id)));
    assert_eq!(me["role"], "owner");
    let permissions = me["permissions"].as_array().unwrap();
    for permission in ["view_automations", "manage_automations"] {
        assert!(permissions.contains(&json!(permission)), "{me}");
    }
    let path = format!("/api/organizations/{id}/me");
    let membership = fixture.world.get(ADA, &path).await.ok();
    assert_eq!(membership["user_id"], me["id"]);
    assert_eq!(membership["permissions"], me["permissions"]);
    // Others see the name, as before.
    let me = fixture.world.get(ADA, "/api/v1/users/me").await.ok();
    assert_eq!((&me["id"], me.get("org_id")), (&json!("ada"), None));
}

#[actix_web::test]
async fn a_request_without_a_valid_key_does_not_reach_the_automations_service() {
    let fixture = AutomationsFixture::new(AuthMode::ApiKey).await;
    for key in ["", "wrong", UNKNOWN] {
        let answer = fixture.world.get(key, "/api/automation/v1").await;
        assert_eq!(answer.status, 401, "{key}");
    }
    for path in [
        "/api/automation/docs",
        "/api/automation/openapi.json",
        "/api/automation/v1/git-sync/status",
        "/api/automation/v1/%67it-sync/status",
        "/api/automation/v1/x/../git-sync/status",
        "/api/automation/",
    ] {
        let answer = fixture.world.get(ADA, path).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text);
    }
    // Its own checks protect these.
    let posted = TestRequest::post().uri("/api/automation/v1/events/o/github");
    let echoed = fixture.world.send(posted).await.ok();
    assert_eq!(echoed["bearer"], Value::Null);
    let version = TestRequest::get().uri("/api/automation/sdk-version");
    fixture
        .world
        .send_to(Listener::Callback, version)
        .await
        .ok();
    // Sandboxes reach only what runs need.
    let list = TestRequest::get().uri("/api/automation/v1");
    let answer = fixture.ask(Listener::Callback, ADA, list).await;
    assert_eq!(answer.status, 404);
}

#[actix_web::test]
async fn keys_for_runs_are_made_for_members_only_and_on_request_of_the_service_only() {
    let fixture = AutomationsFixture::new(AuthMode::ApiKey).await;
    let (ada, bob) = (id_of("ada"), id_of("bob"));
    for wrong in ["", "wrong", ADA] {
        assert_eq!(
            fixture.issue(wrong, &ada, &ada).await.status,
            401,
            "{wrong}"
        );
    }
    for (user, organization) in [
        (ada.as_str(), bob.as_str()),
        (ada.as_str(), UNKNOWN),
        (UNKNOWN, UNKNOWN),
        ("ada", "ada"),
    ] {
        let answer = fixture.issue(SERVICE_KEY, user, organization).await;
        assert_eq!(answer.status, 404, "{user} {organization}");
    }
    let first = fixture.issue(SERVICE_KEY, &ada, &ada).await.ok();
    let second = fixture.issue(SERVICE_KEY, &ada, &ada).await.ok();
    assert_ne!(first["key"], second["key"]);
    let me = fixture
        .get(first["key"].as_str().unwrap(), "/api/v1/users/me")
        .await
        .ok();
    assert_eq!(me["id"], ada);
    // The users' own keys are not affected.
    let keys = fixture.world.get(ADA, "/api/v1/keys").await.ok();
    assert_eq!(keys["items"].as_array().unwrap().len(), 1, "{keys}");
    for listener in [Listener::Public, Listener::Callback] {
        let path = format!("/api/service/users/{ada}/orgs/{ada}/api-keys");
        let request = TestRequest::post()
            .uri(&path)
            .insert_header(("X-Service-API-Key", SERVICE_KEY));
        let answer = fixture.world.send_to(listener, request).await;
        assert_eq!(answer.status, 404, "{listener:?}");
    }
}

#[actix_web::test]
async fn a_key_for_runs_opens_only_what_runs_need() {
    let fixture = AutomationsFixture::new(AuthMode::ApiKey).await;
    let ada = id_of("ada");
    let issued = fixture.issue(SERVICE_KEY, &ada, &ada).await.ok();
    let key = issued["key"].as_str().unwrap();
    for path in [
        "/api/v1/settings",
        "/api/v1/keys",
        "/api/v1/secrets/search",
        "/api/v1/app-conversations/search",
        "/api/v1/sandboxes/search",
        "/api/automation/v1",
        "/api/organizations",
    ] {
        let answer = fixture
            .ask(Listener::Public, key, TestRequest::get().uri(path))
            .await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.text);
    }
    let complete = || TestRequest::post().uri("/api/automation/v1/runs/r/complete");
    for listener in [Listener::Public, Listener::Callback] {
        let echoed = fixture.ask(listener, key, complete()).await.ok();
        assert_eq!(echoed["bearer"], format!("Bearer {key}"));
    }
    let answer = fixture.ask(Listener::Public, ADA, complete()).await;
    assert_eq!(answer.status, 403, "{}", answer.text);
    let answer = fixture.ask(Listener::Callback, ADA, complete()).await;
    assert_eq!(answer.status, 401, "{}", answer.text);
    // A user's key opens nothing on the listeners of sandboxes and of the automations service, also in open mode.
    for mode in [
        AuthMode::ApiKey,
        AuthMode::Open(UserId::parse("ada").unwrap()),
    ] {
        let fixture = AutomationsFixture::new(mode).await;
        for listener in [Listener::Callback, Listener::Automations] {
            for key in [ADA, "wrong"] {
                let me = TestRequest::get().uri("/api/v1/users/me");
                let answer = fixture.ask(listener, key, me).await;
                assert_eq!(answer.status, 401, "{listener:?} {}", answer.text);
            }
        }
    }
}

#[actix_web::test]
async fn the_report_of_a_run_waits_for_a_restart_of_the_automations_service() {
    let mut fixture = AutomationsFixture::new(AuthMode::ApiKey).await;
    let ada = id_of("ada");
    let issued = fixture.issue(SERVICE_KEY, &ada, &ada).await.ok();
    let key = issued["key"].as_str().unwrap();
    let restarting = AutomationsStatus::Unavailable("it starts again".to_owned());
    let running = fixture.status.send_replace(restarting);
    let complete = TestRequest::post().uri("/api/automation/v1/runs/r/complete");
    let echoed = {
        let mut report = pin!(fixture.ask(Listener::Callback, key, complete));
        for _ in 0..100 {
            assert!(poll!(&mut report).is_pending());
            yield_now().await;
        }
        fixture.status.send_replace(running);
        report.await.ok()
    };
    assert_eq!(echoed["bearer"], format!("Bearer {key}"));
    // The run's sandbox is looked at afterwards.
    assert!(fixture.ended.try_recv().is_ok());
}

#[actix_web::test]
async fn runs_have_sandboxes_of_their_own_and_see_no_others() {
    let fixture = AutomationsFixture::new(AuthMode::ApiKey).await;
    let own = fixture
        .world
        .post(ADA, "/api/v1/sandboxes", &json!({}))
        .await
        .ok();
    let own = own["id"].as_str().unwrap();
    let ada = id_of("ada");
    let issued = fixture.issue(SERVICE_KEY, &ada, &ada).await.ok();
    let key = issued["key"].as_str().unwrap();
    let post = |path: &str| TestRequest::post().uri(path);
    let start = || fixture.ask(Listener::Automations, key, post("/api/v1/sandboxes"));
    let made = start().await.ok();
    let made = made["id"].as_str().unwrap();
    // Its answer may get lost.
    assert_eq!(start().await.ok()["id"], made);
    let path = format!("/api/v1/sandboxes?id={own}&id={made}");
    let found = fixture.get(key, &path).await.ok();
    assert_eq!((&found[0], &found[1]["id"]), (&Value::Null, &json!(made)));
    for verb in ["pause", "resume"] {
        let path = format!("/api/v1/sandboxes/{own}/{verb}");
        let answer = fixture.ask(Listener::Automations, key, post(&path)).await;
        assert_eq!(answer.status, 404, "{}", answer.text);
    }
    let delete = |id: &str| {
        let path = format!("/api/v1/sandboxes/{id}?sandbox_id={id}");
        fixture.ask(Listener::Automations, key, TestRequest::delete().uri(&path))
    };
    assert_eq!(delete(own).await.status, 404);
}

/// The scripts of automations add these servers to their conversations.
#[actix_web::test]
async fn a_run_reads_mcp_servers_with_the_key_of_its_sandbox_only() {
    let fixture = AutomationsFixture::new(AuthMode::ApiKey).await;
    let servers = json!({
        "tracker": {"url": "https://tracker.example/mcp", "transport": "http", "headers": {"Authorization": "Bearer mcp-canary"}},
        "local": {"command": "uvx", "args": ["tool"], "env": {"LEVEL": "1"}},
    });
    let change = json!({"agent_settings_diff": {"mcp_config": {"mcpServers": servers}}});
    let path = "/api/v1/settings";
    fixture.world.post(ADA, path, &change).await.ok();
    let ada = id_of("ada");
    let issued = fixture.issue(SERVICE_KEY, &ada, &ada).await.ok();
    let key = issued["key"].as_str().unwrap();
    let start = TestRequest::post().uri("/api/v1/sandboxes");
    let made = fixture.ask(Listener::Automations, key, start).await.ok();
    let own = fixture
        .world
        .post(ADA, "/api/v1/sandboxes", &json!({}))
        .await
        .ok();
    let session_key = async |id: &Value| loop {
        let path = format!("/api/v1/sandboxes?id={}", id.as_str().unwrap());
        let found = fixture.world.get(ADA, &path).await.ok();
        if let Some(key) = found[0]["session_api_key"].as_str() {
            break key.to_owned();
        }
        yield_now().await;
    };
    let me = async |session_key: &str| {
        let request = TestRequest::get()
            .uri("/api/v1/users/me")
            .insert_header(("X-Session-API-Key", session_key));
        fixture.ask(Listener::Callback, key, request).await.ok()
    };
    let of_run = me(&session_key(&made["id"]).await).await;
    let config = &of_run["mcp_config"];
    assert_eq!(
        config["shttp_servers"][0]["url"], "https://tracker.example/mcp",
        "{config}"
    );
    assert!(
        config["shttp_servers"][0]["api_key"].is_string(),
        "{config}"
    );
    assert_eq!(config["stdio_servers"][0]["env"]["LEVEL"], "1", "{config}");
    assert_eq!(config["sse_servers"], json!([]));
    for other in [
        me(&session_key(&own["id"]).await).await,
        fixture.get(key, "/api/v1/users/me").await.ok(),
    ] {
        assert_eq!(other["mcp_config"], Value::Null);
    }
}

#[actix_web::test]
async fn runs_wait_for_the_end_of_others_in_the_order_of_their_first_requests() {
    let fixture = AutomationsFixture::new(AuthMode::ApiKey).await;
    let ada = id_of("ada");
    let mut runs = Vec::new();
    for _ in 0..18 {
        let issued = fixture.issue(SERVICE_KEY, &ada, &ada).await.ok();
        runs.push(issued["key"].as_str().unwrap().to_owned());
    }
    let fixture = &fixture;
    let start = async |run: &str| {
        let post = TestRequest::post().uri("/api/v1/sandboxes");
        fixture.ask(Listener::Automations, run, post).await
    };
    let wait_behind = async |run: &str, what: &str| {
        let refused = start(run).await;
        assert_eq!(refused.status, 429, "{}", refused.text);
        assert!(refused.text.contains(what), "{}", refused.text);
    };
    let delete = async |id: &Value| {
        let id = id.as_str().unwrap();
        let path = format!("/api/v1/sandboxes/{id}?sandbox_id={id}");
        let answer = fixture.world.delete(ADA, &path).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    };
    // The cap is that of the user.
    let mut places = Vec::new();
    for _ in 0..3 {
        let (path, nothing) = ("/api/v1/sandboxes", json!({}));
        let made = fixture.world.post(ADA, path, &nothing).await.ok();
        places.push(made["id"].clone());
    }
    for run in &runs {
        wait_behind(run, "detail").await;
    }
    delete(&places[0]).await;
    // Sixteen may take a place, so that it is soon taken.
    wait_behind(&runs[17], "17 runs").await;
    wait_behind(&runs[16], "16 runs").await;
    assert_eq!(start(&runs[15]).await.status, 200);
    wait_behind(&runs[0], "3 running").await;
    delete(&places[1]).await;
    wait_behind(&runs[17], "16 runs").await;
    assert_eq!(start(&runs[16]).await.status, 200);

    // The others have ended. From here on time is virtual.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    delete(&places[2]).await;
    assert_eq!(start(&runs[17]).await.status, 200);
}

#[actix_web::test]
async fn a_run_that_has_waited_for_hours_is_skipped() {
    let fixture = AutomationsFixture::new(AuthMode::ApiKey).await;
    let ada = id_of("ada");
    let issued = fixture.issue(SERVICE_KEY, &ada, &ada).await.ok();
    let key = issued["key"].as_str().unwrap();
    for _ in 0..3 {
        let (path, nothing) = ("/api/v1/sandboxes", json!({}));
        fixture.world.post(ADA, path, &nothing).await.ok();
    }
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let waited = loop {
        let post = TestRequest::post().uri("/api/v1/sandboxes");
        let refused = fixture.ask(Listener::Automations, key, post).await;
        assert_eq!(refused.status, 429, "{}", refused.text);
        let detail = &refused.json()["detail"];
        // The automations service skips a run that is refused in this form.
        if detail["error"] == "CONCURRENCY_LIMIT_REACHED" {
            assert!(
                detail["message"].as_str().unwrap().contains('3'),
                "{detail}"
            );
            break begun.elapsed();
        }
        assert!(detail.as_str().unwrap().contains('3'), "{detail}");
        tokio::time::advance(Duration::from_secs(50)).await;
    };
    let hours = Duration::from_secs(2 * 60 * 60);
    assert!(waited >= hours && waited < hours + Duration::from_secs(60));
}

#[actix_web::test]
async fn the_first_user_starts_the_automations_service() {
    let fixture = AutomationsFixture::new(AuthMode::ApiKey).await;
    // Whatever else the request has, it is not forwarded: the automations service has other responses to some.
    let target = "/api/automation/health?a=%00";
    let health = fixture.world.get(ADA, target).await.ok();
    assert_eq!(health, json!({"status": "ok"}));
    let installing = AutomationsStatus::Unavailable("it is being installed".to_owned());
    fixture.status.send_replace(installing);
    let health = fixture.world.get(ADA, "/api/automation/health").await.ok();
    assert_eq!(health["status"], "error");
    fixture.wanted.notified().await;
    let answer = fixture.world.get(ADA, "/api/automation/v1").await;
    answer.refuses(503, "it is being installed");
    fixture.wanted.notified().await;
    let config = "/api/v1/web-client/config";
    let offered = fixture.world.get(ADA, config).await.ok();
    assert_eq!(offered["feature_flags"]["enable_automations"], true);
    // Without an automations service nothing changes.
    let world = World::idle().await;
    let health = world.get(ADA, "/api/automation/health").await.ok();
    assert_eq!(health["status"], "error");
    assert_eq!(world.get(ADA, "/api/automation/v1").await.status, 404);
}
