//! Two services on one Postgres, and users that send requests to either.

use std::collections::BTreeMap;
use std::time::Duration;

use acceptance::client::text;
use acceptance::wait::wait_for;
use acceptance::world::{RECONCILE_TIMEOUT, configure_model};
use acceptance::{Client, Postgres, Sandboxing, Service, Stub};
use reqwest::Method;
use serde_json::{Value, json};

/// Deadline of repeated requests while Postgres or both replicas are down.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Fields are dropped in this order: services before Postgres and stub.
pub(crate) struct ReplicaPair {
    pub(crate) replicas: [Service; 2],
    pub(crate) postgres: Postgres,
    pub(crate) stub: Stub,
}

impl ReplicaPair {
    /// Starts both services. `faults` are the stub's fault words, separated by spaces, such as `no-webhooks create-slow`.
    pub(crate) async fn start(sandboxing: &Sandboxing, faults: &str) -> Self {
        Self::configured(sandboxing, faults, &[]).await
    }

    /// Starts the pair with further environment variables.
    pub(crate) async fn configured(
        sandboxing: &Sandboxing,
        faults: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let postgres = Postgres::start();
        let stub = Stub::with_faults(faults);
        let host = format!("replicas-{}", std::process::id());
        let replica = async || {
            let mut builder = Service::builder()
                .sandboxing(sandboxing)
                .stub(&stub)
                .postgres(&postgres)
                .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "4")
                .env("WORKSPACE_SANDBOX__MAX_RUNNING", "24");
            if matches!(sandboxing, Sandboxing::Docker(_)) {
                builder = builder.env("WORKSPACE_SANDBOX__HOST", &host);
            }
            for (name, value) in variables {
                builder = builder.env(name, value);
            }
            builder.start().await
        };
        let replicas = [replica().await, replica().await];
        Self {
            replicas,
            postgres,
            stub,
        }
    }

    /// A user with a model, known to both replicas.
    pub(crate) async fn user(&self, name: &str) -> ReplicaUser {
        let key = self.replicas[0].user(name).key().to_owned();
        let at = |service: &Service| Client::new(service.url(), &key);
        let user = ReplicaUser([at(&self.replicas[0]), at(&self.replicas[1])]);
        configure_model(user.client(0)).await;
        user
    }

    /// The first user, an administrator, at the first replica.
    pub(crate) fn admin(&self) -> Client {
        self.replicas[0].admin()
    }

    pub(crate) fn kill(&mut self, which: usize) {
        self.replicas[which].kill9();
    }

    /// Waits until the sandboxes of these users match their rows, and no other sandbox exists.
    pub(crate) async fn assert_consistent(&self, users: &[&ReplicaUser]) {
        let deadline = tokio::time::Instant::now() + RECONCILE_TIMEOUT;
        while let Err(difference) = self.check_consistency(users).await {
            assert!(tokio::time::Instant::now() < deadline, "{difference}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn check_consistency(&self, users: &[&ReplicaUser]) -> Result<(), String> {
        let mut servers: BTreeMap<String, usize> = BTreeMap::new();
        let mut directories: Vec<String> = Vec::new();
        let is_shared_host = self.replicas[0].instance() == self.replicas[1].instance();
        let inspected = if is_shared_host {
            &self.replicas[..1]
        } else {
            &self.replicas[..]
        };
        for replica in inspected {
            for server in replica.agent_servers() {
                *servers.entry(server.sandbox).or_default() += 1;
            }
            directories.extend(replica.sandbox_directories());
        }
        for user in users {
            for sandbox in user.client(1).sandboxes().await {
                let found = servers.remove(&sandbox.id).unwrap_or(0);
                if found != usize::from(sandbox.status == "RUNNING") {
                    return Err(format!("{found} agent servers of {sandbox:?}"));
                }
                directories.retain(|directory| *directory != sandbox.id);
            }
        }
        if servers.is_empty() && directories.is_empty() {
            return Ok(());
        }
        Err(format!(
            "agent servers and directories without a sandbox: {servers:?} {directories:?}"
        ))
    }
}

/// A request to either replica.
#[derive(Debug, Clone)]
pub(crate) struct ReplicaRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    /// The `Idempotency-Key`.
    pub(crate) key: Option<String>,
}

impl ReplicaRequest {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            body: None,
            key: None,
        }
    }

    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self {
            method: Method::POST,
            body: Some(json!({})),
            ..Self::get(path)
        }
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self {
            method: Method::DELETE,
            ..Self::get(path)
        }
    }

    /// A new conversation.
    pub(crate) fn start(key: &str, message: &str) -> Self {
        let first = json!({"role": "user", "content": text(message), "run": true});
        Self {
            body: Some(json!({"initial_message": first})),
            key: Some(key.to_owned()),
            ..Self::post("/api/v1/app-conversations")
        }
    }
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RequestOutcome {
    Responded(u16, Value),
    /// No response from either replica: the request may have been executed.
    Unknown,
}

/// A user behind a simulated proxy, which repeats a failed request at the other replica.
#[derive(Debug, Clone)]
pub(crate) struct ReplicaUser([Client; 2]);

impl ReplicaUser {
    pub(crate) fn client(&self, which: usize) -> &Client {
        &self.0[which % 2]
    }

    /// # Panics
    /// When the answer is a server error other than 503 with `Retry-After`.
    pub(crate) async fn send(&self, first: usize, request: &ReplicaRequest) -> RequestOutcome {
        for which in [first, first + 1] {
            let (method, body) = (request.method.clone(), request.body.as_ref());
            let sent = self.client(which).try_repeatable(
                method,
                &request.path,
                body,
                request.key.as_deref(),
            );
            let Ok(reply) = sent.await else { continue };
            let may_retry = reply.headers.contains_key("retry-after");
            assert!(
                reply.status < 500 || (reply.status == 503 && may_retry),
                "{request:?}: {} {}",
                reply.status,
                reply.text
            );
            return RequestOutcome::Responded(reply.status, reply.body);
        }
        RequestOutcome::Unknown
    }

    /// Repeats the request until it succeeds. Returns the id in the response.
    pub(crate) async fn send_until_acknowledged(
        &self,
        first: usize,
        request: &ReplicaRequest,
    ) -> String {
        wait_for("an acknowledgement", RETRY_TIMEOUT, || async {
            match self.send(first, request).await {
                RequestOutcome::Responded(200, body) => body["id"].as_str().map(str::to_owned),
                RequestOutcome::Responded(..) | RequestOutcome::Unknown => None,
            }
        })
        .await
    }
}
