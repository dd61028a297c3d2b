//! A service that dies where it is told to, and a client that repeats what was cut off.

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
use crate::rows;

/// Between two looks at something that takes its time.
const POLL_INTERVAL: Duration = Duration::from_millis(15);
/// How long the end of a process may take after its connections have broken.
const DIES: Duration = Duration::from_secs(10);
/// Any 32 bytes will do.
const MASTER_KEY: &str = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=";
/// What is said of each request is too much here.
const LOG: &str = "info,http_api=warn,application=debug,sandbox_process=debug,sandbox_docker=debug";
/// How often a request is cut off at most, and once more.
const MAX_ATTEMPTS: usize = 4;

/// Dropped in this order: the service ends what it runs before the directories go.
pub(crate) struct CrashBench {
    pub(crate) service: Service,
    pub(crate) user: Client,
    /// The database, unless it is a file of the service.
    pub(crate) postgres: Option<Postgres>,
    plans: PlanSet,
    /// Where it is to die, now and after it has come back.
    planned: VecDeque<PlannedCrash>,
    /// What a failure tells.
    story: String,
    deaths: usize,
    cases: usize,
    _stub: Stub,
}

/// Something to be asked of the service, that may be asked again.
pub(crate) struct ClientRequest<'a> {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    /// The `Idempotency-Key`, where asking twice would be two things.
    pub(crate) key: Option<&'a str>,
    /// As somebody else than the user.
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
            // A case asks often.
            .env("WORKSPACE_LOG__LEVEL", LOG)
            // A sandbox too many, or a slot that is not given back, is seen at once: the next start is refused.
            .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "1")
            .env("WORKSPACE_SANDBOX__MAX_RUNNING", "1");
        if let Some(postgres) = &postgres {
            builder = builder
                .env("WORKSPACE_STORAGE__URL", &postgres.url())
                .env("WORKSPACE_SECRETS__MASTER_KEY", MASTER_KEY);
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
            story: String::new(),
            deaths: 0,
            cases: 0,
            _stub: stub,
        }
    }

    /// From now on the service dies at the first of these points, and when it has come back, at the next one; without any
    /// it only notes where it comes by.
    pub(crate) fn arm(&mut self, points: &[PlannedCrash]) {
        self.cases += 1;
        self.deaths = 0;
        self.planned = points.iter().cloned().collect();
        let story: Vec<String> = points.iter().map(PlannedCrash::to_string).collect();
        self.story = story.join(", then ");
        self.plans.arm(self.planned.front());
    }

    /// From now on it lives. How often it has died, and where it came by.
    pub(crate) async fn disarm(&mut self) -> (usize, Vec<PlannedCrash>) {
        let arrivals = self.plans.arrivals();
        // It lives on from here.
        self.planned.truncate(1);
        self.plans.disarm();
        // It may be dying just now: then it does not answer.
        if self
            .user
            .try_call(Method::GET, "/alive", None)
            .await
            .is_err()
        {
            self.revive("/alive").await;
        }
        self.planned.clear();
        (self.deaths, arrivals)
    }

    /// A name that no other case has.
    pub(crate) fn name(&self) -> String {
        format!("case-{}", self.cases)
    }

    /// Asks, and asks again what was cut off because the service died. Whether the answer is to the first asking.
    pub(crate) async fn ask(&mut self, ask: &ClientRequest<'_>) -> (Reply, bool) {
        for tries in 0..MAX_ATTEMPTS {
            let client = ask.caller.as_ref().unwrap_or(&self.user);
            let (method, body) = (ask.method.clone(), ask.body.as_ref());
            let sent = client.try_repeatable(method, &ask.path, body, ask.key);
            match sent.await {
                Ok(reply) => return (reply, tries == 0),
                Err(_) => self.revive(&ask.path).await,
            }
        }
        panic!("{} was cut off {MAX_ATTEMPTS} times", ask.path);
    }

    /// What is at a path.
    pub(crate) async fn read(&mut self, path: &str) -> Value {
        self.ask(&ClientRequest::new(Method::GET, path))
            .await
            .0
            .ok()
    }

    /// Asks until there is an answer, through the death of the service.
    pub(crate) async fn until<T>(
        &mut self,
        what: &str,
        mut look: impl AsyncFnMut(&mut Self) -> Result<T, String>,
    ) -> T {
        let began = Instant::now();
        loop {
            if self.service.ended().is_some() {
                self.revive(what).await;
            }
            let in_the_way = match look(self).await {
                Ok(found) => return found,
                Err(in_the_way) => in_the_way,
            };
            assert!(
                began.elapsed() < RECONCILE_TIMEOUT,
                "waited {RECONCILE_TIMEOUT:?} in vain for {what}: {in_the_way}"
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Starts it again after it has died as planned.
    async fn revive(&mut self, asked: &str) {
        let service = &mut self.service;
        let mut ended = wait_for("the end of a service that does not answer", DIES, || {
            let ended = service.ended();
            async move { ended }
        })
        .await;
        loop {
            assert!(
                self.planned.pop_front().is_some() && ended.signal() == Some(9),
                "at {asked}: the service ended by itself ({ended})"
            );
            self.deaths += 1;
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
        self.postgres.as_ref().map_or_else(
            || rows::of_sqlite(&self.service.data().join("agent-workspace.db"), sql),
            |server| server.query(sql),
        )
    }
}

impl Drop for CrashBench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print_line(&format!("---- {}: killed {} ----", self.name(), self.story));
        }
    }
}
