//! A service that is killed at planned crash points, and a client that repeats failed requests.

use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use acceptance::client::Reply;
use acceptance::wait::wait_for;
use acceptance::world::{RECONCILE_TIMEOUT, configure_model};
use acceptance::{Client, Postgres, Sandboxing, Service, Stub, print_line};
use reqwest::Method;
use serde_json::Value;

use crate::plan::{PlanSet, PlannedCrash};

/// Interval of polls.
const POLL_INTERVAL: Duration = Duration::from_millis(15);
/// Time for a process to end after its connections broke.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Without a line for each request.
const LOG_LEVEL: &str =
    "info,http_api=warn,application=debug,sandbox_process=debug,sandbox_docker=debug";
/// Maximum number of attempts of a request.
const MAX_ATTEMPTS: usize = 4;

/// Dropped in this order: the service ends its processes before the directories are deleted.
pub(crate) struct CrashBench {
    pub(crate) service: Service,
    pub(crate) user: Client,
    /// The database, unless it is a file of the service.
    pub(crate) postgres: Option<Postgres>,
    plans: PlanSet,
    /// Where the service is killed, now and after restarts.
    planned: VecDeque<PlannedCrash>,
    /// Describes the case if it fails.
    description: String,
    kills: usize,
    cases: usize,
    _stub: Stub,
}

/// A request that may be repeated.
pub(crate) struct ClientRequest<'a> {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    /// The `Idempotency-Key`, if repeating would create a second resource.
    pub(crate) key: Option<&'a str>,
    /// The sender, if it is not the user.
    pub(crate) caller: Option<Client>,
}

impl ClientRequest<'_> {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            body: None,
            key: None,
            caller: None,
        }
    }
}

impl CrashBench {
    pub(crate) async fn start(sandboxing: &Sandboxing, postgres: Option<Postgres>) -> Self {
        let (stub, plans) = (Stub::new(), PlanSet::new());
        let mut builder = Service::builder()
            .sandboxing(sandboxing)
            .stub(&stub)
            .env("CRASH_POINTS_DIR", &plans.dir().display().to_string())
            .env("WORKSPACE_LOG__LEVEL", LOG_LEVEL)
            // A leftover sandbox, or a slot that is not released, makes the next start fail.
            .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "1")
            .env("WORKSPACE_SANDBOX__MAX_RUNNING", "1");
        if let Some(postgres) = &postgres {
            builder = builder.postgres(postgres);
        }
        let service = builder.start().await;
        let user = service.admin();
        configure_model(&user).await;
        Self {
            service,
            user,
            postgres,
            plans,
            planned: VecDeque::new(),
            description: String::new(),
            kills: 0,
            cases: 0,
            _stub: stub,
        }
    }

    /// Lets the service be killed at the first of these points, and after the restart at the next one. Without points it
    /// only records arrivals.
    pub(crate) fn arm(&mut self, points: &[PlannedCrash]) {
        self.cases += 1;
        self.kills = 0;
        self.planned = points.iter().cloned().collect();
        let description: Vec<String> = points.iter().map(PlannedCrash::to_string).collect();
        self.description = description.join(", then ");
        self.plans.arm(self.planned.front());
    }

    /// Ends the kills. Returns their number, and the arrivals.
    pub(crate) async fn disarm(&mut self) -> (usize, Vec<PlannedCrash>) {
        let arrivals = self.plans.arrivals();
        self.planned.truncate(1);
        self.plans.disarm();
        // A kill may be in progress; then the service does not answer.
        if self
            .user
            .try_call(Method::GET, "/alive", None)
            .await
            .is_err()
        {
            self.restart_after_kill("/alive").await;
        }
        self.planned.clear();
        (self.kills, arrivals)
    }

    /// A unique name of the case.
    pub(crate) fn name(&self) -> String {
        format!("case-{}", self.cases)
    }

    /// Sends a request, and repeats it after a kill. Also returns whether the first attempt was answered.
    pub(crate) async fn send(&mut self, request: &ClientRequest<'_>) -> (Reply, bool) {
        for attempt in 0..MAX_ATTEMPTS {
            let client = request.caller.as_ref().unwrap_or(&self.user);
            let (method, body) = (request.method.clone(), request.body.as_ref());
            let sent = client.try_repeatable(method, &request.path, body, request.key);
            match sent.await {
                Ok(reply) => return (reply, attempt == 0),
                Err(_) => self.restart_after_kill(&request.path).await,
            }
        }
        panic!(
            "{} failed {MAX_ATTEMPTS} times without a response",
            request.path
        );
    }

    /// The document at a path.
    pub(crate) async fn read(&mut self, path: &str) -> Value {
        self.send(&ClientRequest::new(Method::GET, path))
            .await
            .0
            .ok()
    }

    /// Polls until the condition returns a value, also across kills of the service.
    pub(crate) async fn until<T>(
        &mut self,
        what: &str,
        mut condition: impl AsyncFnMut(&mut Self) -> Result<T, String>,
    ) -> T {
        let started_at = Instant::now();
        loop {
            if self.service.exit_status().is_some() {
                self.restart_after_kill(what).await;
            }
            let obstacle = match condition(self).await {
                Ok(found) => return found,
                Err(obstacle) => obstacle,
            };
            assert!(
                started_at.elapsed() < RECONCILE_TIMEOUT,
                "no {what} within {RECONCILE_TIMEOUT:?}: {obstacle}"
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Restarts the service after a planned kill.
    async fn restart_after_kill(&mut self, operation: &str) {
        let service = &mut self.service;
        let mut ended = wait_for(
            "the end of a service that does not answer",
            EXIT_TIMEOUT,
            || {
                let ended = service.exit_status();
                async move { ended }
            },
        )
        .await;
        loop {
            assert!(
                self.planned.pop_front().is_some() && ended.signal() == Some(9),
                "{operation}: the service ended without a planned kill ({ended})"
            );
            self.kills += 1;
            match self.planned.front() {
                Some(next) => self.plans.arm(Some(next)),
                None => self.plans.disarm(),
            }
            match self.service.try_restart().await {
                Some(again) => ended = again,
                None => return,
            }
        }
    }

    /// One value of the database.
    pub(crate) fn query(&self, sql: &str) -> String {
        match &self.postgres {
            Some(server) => server.query(sql),
            None => self.service.query(sql),
        }
    }
}

impl Drop for CrashBench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print_line(&format!(
                "---- {}: killed {} ----",
                self.name(),
                self.description
            ));
        }
    }
}
