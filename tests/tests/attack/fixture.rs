//! The service, its normal users and its attackers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acceptance::client::text;
use acceptance::figures::wire::{self, Connection};
use acceptance::wait::wait_for;
use acceptance::{Client, Service, Stub, print_line};
use serde_json::{Value, json};

use crate::kills::KillClock;
use crate::options::Scale;
use crate::samples::MemoryWatch;

const USERS: usize = 3;
/// Time for the preparation of the attackers. Afterwards they continue with what they have.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(240);
/// Time until sandboxes run again after a kill.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(120);
/// Events in one report.
const BATCH: usize = 500;
/// Pause before a refused request is repeated, and the maximum number of refusals.
const REFUSAL_BACKOFF: Duration = Duration::from_millis(500);
const MAX_REFUSALS: usize = 20;
/// Sizes of titles and first messages, from just below the limit of a body to sizes that every service accepts.
const LARGE_START_BYTES: [(usize, usize); 4] = [
    (300_000, 1_500_000),
    (200, 1_500_000),
    (200, 100_000),
    (200, 1_000),
];

/// A user with a conversation in a running sandbox. All texts of the user contain the user's mark.
#[derive(Debug, Clone)]
pub(crate) struct UserFixture {
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    pub(crate) mark: String,
    pub(crate) conversation: String,
    pub(crate) sandbox: String,
    pub(crate) sandbox_key: String,
}

impl UserFixture {
    /// Creates the user. `named` consists of letters and digits.
    async fn create(service: &Service, named: &str) -> Self {
        let mark = format!("MarkOf{named}Z");
        let client = service.user(named);
        client
            .use_model("openai/stub", "http://127.0.0.1:9/v1", &mark)
            .await;
        let secret = json!({"name": "MINE", "value": mark, "description": mark});
        let _ = client.post("/api/v1/secrets", &secret).await.ok();
        let message =
            json!({"role": "user", "run": true, "content": text(&format!("{mark} STEPS=20"))});
        let request = json!({"title": format!("{mark} talk"), "initial_message": message});
        let conversation = client.wait_until_ready(&client.start(&request).await).await;
        let sandbox_key = conversation.session_api_key.clone();
        Self {
            url: service.url(),
            address: service.address(),
            key: client.key().to_owned(),
            mark,
            conversation: conversation.id,
            sandbox: conversation.sandbox_id,
            sandbox_key: sandbox_key.expect("a running sandbox has a key"),
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.url.clone(), &self.key)
    }

    /// A start request for the user's sandbox.
    pub(crate) fn start_request(&self, title: &str, message: &str) -> Value {
        let message = json!({"role": "user", "run": false, "content": text(message)});
        json!({"title": title, "sandbox_id": self.sandbox, "initial_message": message})
    }

    /// A report of events of the conversation, as the agent server sends it.
    pub(crate) fn report(&self, events: &Value) -> Vec<u8> {
        let path = format!("/api/v1/webhooks/events/{}", self.conversation);
        let key = wire::key_header(&self.sandbox_key);
        wire::request("POST", &path, &[key], &events.to_string())
    }

    /// Reports `count` events. Repeats refused reports until the time is over. Returns the number of accepted events.
    async fn fill(&self, count: usize) -> usize {
        let began = Instant::now();
        let mut connection = Connection::open(self.address).await.expect("it listens");
        let mut taken = 0;
        while taken < count && began.elapsed() < PREPARE_TIMEOUT {
            let end = (taken + BATCH).min(count);
            let events = (taken..end).map(|number| small_event(&format!("fill-{number}")));
            let report = self.report(&events.collect());
            let answer = connection.exchange(&report).await.expect("an answer");
            if answer.status == 200 {
                taken = end;
            } else {
                tokio::time::sleep(REFUSAL_BACKOFF).await;
            }
        }
        taken
    }

    /// Starts conversations with the largest bodies that the service accepts. Returns the number of accepted starts.
    async fn start_large(&self, count: usize) -> usize {
        let client = self.client();
        let (mut taken, mut refused) = (0, 0);
        let mut sizes = LARGE_START_BYTES.as_slice();
        while taken < count
            && refused < MAX_REFUSALS
            && let [(title, message), smaller @ ..] = sizes
        {
            let request = self.start_request(&"t".repeat(*title), &"m".repeat(*message));
            let answer = client.post("/api/v1/app-conversations", &request).await;
            match answer.status {
                200 => taken += 1,
                413 | 422 => sizes = smaller,
                // Too many concurrent starts, or a quota.
                _ => {
                    refused += 1;
                    tokio::time::sleep(REFUSAL_BACKOFF).await;
                }
            }
        }
        taken
    }
}

/// A minimal event.
pub(crate) fn small_event(id: &str) -> Value {
    json!({"kind": "ObservationEvent", "id": id, "timestamp": "2026-11-21T10:00:00.123456", "source": "environment"})
}

/// The service and all users.
pub(crate) struct Fixture {
    pub(crate) service: Service,
    pub(crate) normal: Vec<UserFixture>,
    pub(crate) attackers: Vec<UserFixture>,
    pub(crate) clock: Arc<KillClock>,
    pub(crate) memory: Arc<MemoryWatch>,
    _stub: Stub,
}

impl Fixture {
    /// Starts the service with its default limits. `wait`: how long a request waits for the store.
    pub(crate) async fn start(scale: Scale, wait: Option<&str>) -> Self {
        let stub = Stub::new();
        let mut builder = Service::builder()
            .stub(&stub)
            .env("WORKSPACE_LOG__LEVEL", "warn")
            .env("WORKSPACE_HTTP__REQUESTS_PER_SECOND", "1000");
        if let Some(wait) = wait {
            builder = builder.env("WORKSPACE_STORAGE__WAIT", wait);
        }
        let service = builder.start().await;
        let memory = Arc::new(MemoryWatch::default());
        memory.follow(service.pid());
        let mut fixture = Self {
            normal: Vec::new(),
            attackers: Vec::new(),
            clock: Arc::default(),
            memory,
            _stub: stub,
            service,
        };
        for number in 0..USERS {
            let normal = UserFixture::create(&fixture.service, &format!("Normal{number}")).await;
            let client = normal.client();
            for _ in 1..scale.own_conversations {
                let title = format!("{} further", normal.mark);
                let request = normal.start_request(&title, &normal.mark);
                let _ = client.wait_until_ready(&client.start(&request).await).await;
            }
            fixture.normal.push(normal);
            let attacker =
                UserFixture::create(&fixture.service, &format!("Attacker{number}")).await;
            fixture.attackers.push(attacker);
        }
        fixture
    }

    /// Prepares the long conversation of the first attacker and the large starts of the second one.
    pub(crate) async fn prepare_attacks(&self, scale: Scale) {
        let (events, starts) = tokio::join!(
            self.attackers[0].fill(scale.events),
            self.attackers[1].start_large(scale.large_starts)
        );
        let (wanted, large) = (scale.events, scale.large_starts);
        print_line(&format!(
            "the attackers have {events} of {wanted} events and {starts} of {large} large starts"
        ));
        assert!(
            events > 0 && starts > 0,
            "the attackers have nothing to attack with"
        );
    }

    /// Kills the service (`kill -9`), restarts it and waits for the sandboxes of the normal users. Returns the time it took.
    pub(crate) async fn kill(&mut self) -> Duration {
        let began = Instant::now();
        self.clock.record_kill();
        self.memory.follow(0);
        self.service.restart().await;
        self.memory.follow(self.service.pid());
        for user in &self.normal {
            let client = user.client();
            let what = format!("the sandbox of {} runs again", user.mark);
            wait_for(&what, RECOVERY_TIMEOUT, || async {
                let path = format!("/api/v1/sandboxes?id={}", user.sandbox);
                let answer = client.try_call(reqwest::Method::GET, &path, None).await;
                let answer = answer.ok().filter(|it| it.status == 200)?;
                (answer.body[0]["status"] == "RUNNING").then_some(())
            })
            .await;
        }
        self.clock.record_recovery();
        began.elapsed()
    }

    /// Fails if an attacker's usage exceeds a quota.
    pub(crate) async fn check_attacker_quotas(&self) -> Result<(), String> {
        for attacker in &self.attackers {
            let usage = attacker.client().get("/api/v1/usage").await;
            if usage.status != 200 {
                return Err(format!("GET /api/v1/usage answers {}", usage.status));
            }
            for (name, entry) in usage.body.as_object().into_iter().flatten() {
                let (used, limit) = (entry["used"].as_u64(), entry["limit"].as_u64());
                if let (Some(used), Some(limit)) = (used, limit)
                    && used > limit
                {
                    return Err(format!("{name}: {used} of {limit}"));
                }
            }
        }
        Ok(())
    }
}
