//! Hostile requests by the thousand against the real binary, made from its own `OpenAPI` document.
//!
//! A run has a seed: the same seed sends the same requests, apart from ids that the service generates. The rules are what
//! every client may rely on, whatever it sends: a response in time, a documented status, errors in the documented forms, no
//! secret, and no data of another user. A request that breaks a rule is reduced and shown as a curl command.

mod random;
mod raw;
mod requests;
mod rules;
mod shrink;
mod surface;
pub mod tenancy;
mod values;
mod wire;
mod world;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use serde_json::json;

pub use self::random::Random;
use self::requests::RequestKeys;
use self::rules::{BrokenRule, OTHER_USERS_CANARY};
use self::surface::ApiSurface;
use self::values::CANARY;
use self::wire::Request;
use self::world::KnownIds;
use crate::agent_server::variable_of;
use crate::client::{Client, text};
use crate::processes::resident_bytes;
use crate::service::Service;
use crate::wait::{wait_for, wait_until};

/// Maximum time of a request, also on a busy machine. The service itself waits 30 s for a body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(45);
/// Maximum number of concurrent requests.
const MAX_CONCURRENT_REQUESTS: usize = 8;
/// Requests between two checks of the service.
const REQUESTS_PER_ROUND: u64 = 250;
/// Number of different failures after which a run ends.
const MAX_FAILURES: usize = 15;
/// Maximum growth of resident memory after the warm-up. It covers the store's page cache and the allocator's variation.
const MAX_GROWTH_BYTES: u64 = 48 << 20;

/// Options of a run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Number of requests; `None` for no limit.
    pub requests: Option<u64>,
    /// Maximum duration.
    pub limit: Option<Duration>,
    /// Determines the requests.
    pub seed: u64,
}

impl Options {
    /// Reads the variables `HOSTILE_REQUESTS`, `HOSTILE_MINUTES` and `HOSTILE_SEED`, which `cargo xtask soak` sets. Default:
    /// 10,000 requests of seed 2.
    #[must_use]
    pub fn from_environment() -> Self {
        let number = |name| variable_of(name).and_then(|value| value.parse::<u64>().ok());
        let limit = number("HOSTILE_MINUTES").map(|minutes| Duration::from_secs(60 * minutes));
        let requests = number("HOSTILE_REQUESTS");
        Self {
            requests: requests.or(if limit.is_some() { None } else { Some(10_000) }),
            limit,
            seed: number("HOSTILE_SEED").unwrap_or(2),
        }
    }

    fn is_over(&self, sent: u64, since: Instant) -> bool {
        self.requests.is_some_and(|requests| sent >= requests)
            || self.limit.is_some_and(|limit| since.elapsed() >= limit)
    }
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Requests that were sent.
    pub sent: u64,
    /// Number of responses by status; 0: no response.
    pub statuses: BTreeMap<u16, u64>,
    /// Descriptions of failures, a paragraph each.
    pub failures: Vec<String>,
    /// Numbers of sent requests, with the resident memory at that time in bytes.
    pub memory: Vec<(u64, u64)>,
}

impl Report {
    /// Human-readable summary.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = format!("{} requests; answers by status:", self.sent);
        for (status, count) in &self.statuses {
            let _ = write!(text, " {status}×{count}");
        }
        let _ = write!(text, "; resident memory (MiB):");
        let step = self.memory.len().div_ceil(12).max(1);
        for (sent, bytes) in self.memory.iter().step_by(step).chain(self.memory.last()) {
            let _ = write!(text, " {}@{sent}", bytes >> 20);
        }
        text
    }

    /// Growth of the memory after the first third of the run.
    fn growth(&self) -> u64 {
        let warm = self.memory.get(self.memory.len() / 3);
        let last = self.memory.last();
        warm.zip(last)
            .map_or(0, |((_, warm), (_, last))| last.saturating_sub(*warm))
    }
}

/// Sends requests and checks the responses. The service must run the stub in a small number of sandboxes.
///
/// # Panics
/// When the service does not work as it should, between rounds and at the end.
pub async fn run(service: &mut Service, options: Options) -> Report {
    let mut run = HostileRun::prepare(service).await;
    let (address, key) = (service.address(), run.user.key().to_owned());
    let misuse = raw::misuse(address, &key);
    let (misused, ()) = futures::join!(misuse, run.send_all_rounds(service, options));
    run.report.failures.extend(misused);
    run.finish(service).await;
    run.report
}

struct HostileRun {
    user: Client,
    other: Client,
    surface: ApiSurface,
    known: KnownIds,
    report: Report,
    /// Broken rules, and the operations that broke them. Each pair is reported once.
    reported: Vec<(&'static str, String)>,
}

impl HostileRun {
    async fn prepare(service: &Service) -> Self {
        let (user, other) = (service.admin(), service.user("other"));
        let surface = ApiSurface::read(user.get("/openapi.json").await.ok());
        let known = KnownIds::default();
        for (user, title) in [(&user, "mine"), (&other, OTHER_USERS_CANARY)] {
            user.use_model("openai/stub", "http://127.0.0.1:9/v1", CANARY)
                .await;
            let message = json!({"role": "user", "content": text("hello"), "run": true});
            let request =
                json!({"title": title, "initial_message": message, "secrets": {"NAME": CANARY}});
            let task = user.start(&request).await;
            let conversation = user.wait_until_ready(&task).await;
            for id in [&task.id, &conversation.id, &conversation.sandbox_id] {
                known.add(id);
            }
        }
        let secrets = json!({"search_api_key": CANARY, "sandbox_api_key": CANARY});
        let _ = user.post("/api/v1/settings", &secrets).await.ok();
        let tokens = json!({"provider_tokens": {"github": {"token": CANARY}}});
        let _ = user.post("/api/add-git-providers", &tokens).await.ok();
        let secret = json!({"name": "PLANTED", "value": CANARY});
        let _ = user.post("/api/v1/secrets", &secret).await.ok();
        for name in ["PLANTED", "github_token"] {
            known.add(name);
        }
        Self {
            user,
            other,
            surface,
            known,
            report: Report::default(),
            reported: Vec::new(),
        }
    }

    async fn send_all_rounds(&mut self, service: &mut Service, options: Options) {
        let began = Instant::now();
        while !options.is_over(self.report.sent, began) && self.reported.len() < MAX_FAILURES {
            let keys = self.keys().await;
            let first = self.report.sent;
            let count = options.requests.map_or(REQUESTS_PER_ROUND, |all| {
                (all - first).min(REQUESTS_PER_ROUND)
            });
            self.round(service, options.seed, first..first + count, &keys)
                .await;
            if let Some(status) = service.exit_status() {
                let failure = format!("seed {}: the service ended ({status})", options.seed);
                self.report.failures.push(failure);
                return;
            }
            let memory = resident_bytes(service.pid()).unwrap_or_default();
            self.report.memory.push((self.report.sent, memory));
        }
    }

    /// The keys to call with. No earlier request may have broken the account: a conversation runs, or can be started.
    async fn keys(&self) -> RequestKeys {
        let running = |sandboxes: Vec<crate::client::Sandbox>| {
            let mut running = sandboxes.into_iter().filter(|s| s.status == "RUNNING");
            running.find_map(|sandbox| sandbox.session_api_key)
        };
        let mut sandbox = running(self.user.sandboxes().await);
        if sandbox.is_none() {
            self.clear(&self.user).await;
            self.user
                .use_model("openai/stub", "http://127.0.0.1:9/v1", CANARY)
                .await;
            // A request may have stored a list, and a service without one refuses starts then.
            let no_list = json!({"egress_allow": null});
            let _ = self.user.post("/api/v1/settings", &no_list).await.ok();
            let conversation = self.user.converse("hello again").await;
            self.known.add(&conversation.id);
            sandbox = running(self.user.sandboxes().await);
        }
        RequestKeys {
            user: self.user.key().to_owned(),
            sandbox,
        }
    }

    async fn round(
        &mut self,
        service: &Service,
        seed: u64,
        numbers: std::ops::Range<u64>,
        keys: &RequestKeys,
    ) {
        let address = service.address();
        let count = numbers.end - numbers.start;
        let (surface, known) = (&self.surface, &self.known);
        let exchanges = stream::iter(numbers).map(|number| async move {
            let mut random = Random::new(seed, number);
            let request = requests::request(surface, &mut random, known, keys);
            let outcome = wire::exchange(address, &request.bytes(), REQUEST_TIMEOUT).await;
            if let Ok(response) = &outcome {
                known.learn(&request, response);
            }
            (number, request, outcome)
        });
        let done: Vec<_> = exchanges
            .buffer_unordered(MAX_CONCURRENT_REQUESTS)
            .collect()
            .await;
        self.report.sent += count;
        for (number, request, outcome) in done {
            let status = outcome.as_ref().map_or(0, |response| response.status);
            *self.report.statuses.entry(status).or_default() += 1;
            if let Some(broken) = rules::judge(&self.surface, &request, &outcome) {
                let label = format!("seed {seed}, request {number}");
                self.record_failure(service, &label, request, &broken).await;
            }
        }
    }

    async fn record_failure(
        &mut self,
        service: &Service,
        label: &str,
        request: Request,
        broken: &BrokenRule,
    ) {
        let operation = self.surface.find(&request.method, request.path());
        let place = operation.map_or_else(
            || request.method.clone(),
            |o| format!("{} {}", o.method, o.path),
        );
        if self.reported.contains(&(broken.rule, place.clone())) {
            return;
        }
        self.reported.push((broken.rule, place));
        let address = service.address();
        let smallest =
            shrink::smallest(&self.surface, address, request, broken, REQUEST_TIMEOUT).await;
        let cut = |text: String| text.chars().take(3_000).collect::<String>();
        let failure = format!(
            "{label}: {} – {}\n  {}",
            broken.rule,
            cut(broken.detail.clone()),
            cut(smallest.curl(address))
        );
        crate::print_line(&failure);
        self.report.failures.push(failure);
    }

    /// Checks that the service is healthy and that everything that was started can be deleted.
    async fn finish(&mut self, service: &mut Service) {
        if service.exit_status().is_some() {
            return;
        }
        if self.report.growth() > MAX_GROWTH_BYTES {
            let failure = format!("resident memory grew by {} MiB", self.report.growth() >> 20);
            self.report.failures.push(failure);
        }
        let alive = self.user.get("/alive").await;
        assert_eq!(alive.status, 200, "{alive:?}");
        let ready = self.user.get("/ready").await;
        assert_eq!(ready.status, 200, "{ready:?}");
        let users = [&self.user, &self.other];
        service.assert_no_orphans(&users).await;
        for user in users {
            self.clear(user).await;
        }
        wait_until(
            "the end of all processes of sandboxes",
            Duration::from_secs(60),
            || service.processes().is_empty() && service.sandbox_directories().is_empty(),
        )
        .await;
    }

    /// Deletes all sandboxes of a user, also those that unfinished starts still create.
    async fn clear(&self, user: &Client) {
        wait_for("no sandbox", Duration::from_secs(60), || async {
            let sandboxes = user.sandboxes().await;
            for sandbox in &sandboxes {
                let _ = user
                    .delete(&format!("/api/v1/sandboxes/{}", sandbox.id))
                    .await;
            }
            sandboxes.is_empty().then_some(())
        })
        .await;
    }
}
