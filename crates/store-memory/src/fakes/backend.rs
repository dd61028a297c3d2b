//! A fake sandbox backend.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::id::{SandboxId, SpecId};
use domain::sandbox::{
    AGENT_SERVER, BackendCapabilities, BackendFact, BackendReachability, BackendState, ExposedUrl,
    LogMask, LogStream, LogTail, PrepareProgress, SandboxBackend, SandboxEndpoints, SandboxError,
    SandboxLaunch, SandboxLifecycle, SandboxReader, is_below, normalize_path,
};
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::stream::{self, BoxStream};
use secrecy::SecretString;
use tokio::sync::watch;
use url::Url;

use crate::fakes::dormant_servers::DormantServers;

/// A backend that runs nothing and fails on demand.
pub struct FakeSandboxBackend {
    state: Mutex<FakeBackendState>,
    failures: AtomicU32,
    starts: AtomicU32,
    lists: AtomicU32,
    hanging: watch::Sender<bool>,
    hanging_removals: watch::Sender<bool>,
    reachability: watch::Sender<BackendReachability>,
    /// Changes with every log line and every exit.
    logs: watch::Sender<BTreeMap<SandboxId, FakeLog>>,
}

/// The log of a sandbox.
#[derive(Debug, Default, Clone)]
struct FakeLog {
    lines: Vec<String>,
    has_ended: bool,
}

#[derive(Default)]
struct FakeBackendState {
    sandboxes: BTreeMap<SandboxId, BackendState>,
    /// The last assigned port. Ports are not reused.
    last_port: u16,
    /// A fixed port of all sandboxes, for tests with a real server.
    port: Option<u16>,
    watchers: Vec<UnboundedSender<BackendFact>>,
    /// The sandboxes that were ever started.
    launched: BTreeSet<SandboxId>,
    preparing: Option<(String, Duration)>,
    starting: Option<(String, Duration)>,
    warnings: Vec<String>,
    recipe: Option<String>,
    has_no_image: bool,
    dormant_servers: DormantServers,
    /// The sandboxes that were first started dormant.
    born_dormant: BTreeSet<SandboxId>,
    keeps_environment: bool,
    /// Whether sandboxes have no forward proxy.
    has_no_proxy: bool,
    /// Further exposed URLs of all sandboxes.
    extra_urls: Vec<ExposedUrl>,
}

impl Default for FakeSandboxBackend {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            failures: AtomicU32::new(0),
            starts: AtomicU32::new(0),
            lists: AtomicU32::new(0),
            hanging: watch::Sender::new(false),
            hanging_removals: watch::Sender::new(false),
            reachability: watch::Sender::new(BackendReachability::Reachable),
            logs: watch::Sender::default(),
        }
    }
}

impl FakeSandboxBackend {
    fn lock(&self) -> MutexGuard<'_, FakeBackendState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the next `times` starts fail.
    pub fn fail_starts(&self, times: u32) {
        self.failures.store(times, Ordering::SeqCst);
    }

    /// Sets the port of sandboxes that start from now on.
    pub fn set_port(&self, port: u16) {
        self.lock().port = Some(port);
    }

    /// Adds an exposed URL to sandboxes that start from now on.
    pub fn expose_url(&self, exposed: ExposedUrl) {
        self.lock().extra_urls.push(exposed);
    }

    /// Makes calls hang until it is called with `false`. Hanging calls can be cancelled.
    pub fn set_hanging(&self, hanging: bool) {
        self.hanging.send_replace(hanging);
    }

    /// Makes removals hang until it is called with `false`.
    pub fn set_hanging_removals(&self, hanging: bool) {
        self.hanging_removals.send_replace(hanging);
    }

    /// Makes preparations take this long (of tokio's clock) and report this line.
    pub fn prepare_slowly(&self, line: &str, time: Duration) {
        self.lock().preparing = Some((line.to_owned(), time));
    }

    /// The same for starts.
    pub fn start_slowly(&self, line: &str, time: Duration) {
        self.lock().starting = Some((line.to_owned(), time));
    }

    /// Sets the result of `list_warnings`.
    pub fn set_warnings(&self, warnings: &[&str]) {
        self.lock().warnings = warnings.iter().map(|&line| line.to_owned()).collect();
    }

    /// Leaves the forward proxy out of sandboxes that start from now on.
    pub fn leave_proxy_out(&self) {
        self.lock().has_no_proxy = true;
    }

    /// Sets the recipe of all specs.
    pub fn set_recipe(&self, recipe: &str) {
        self.lock().recipe = Some(recipe.to_owned());
    }

    /// Makes `recipe` fail from now on.
    pub fn lose_image(&self) {
        self.lock().has_no_image = true;
    }

    /// The agent servers that it booted dormant, for
    /// [`FakeAgentRuntime::share_dormant_servers`](crate::FakeAgentRuntime::share_dormant_servers). Without that call
    /// all are awake, like those of an image without this feature.
    pub fn dormant_servers(&self) -> DormantServers {
        self.lock().dormant_servers.clone()
    }

    /// Whether a sandbox that was first started dormant boots dormant at every start, as containers do.
    pub fn set_keeps_environment(&self, keeps: bool) {
        self.lock().keeps_environment = keeps;
    }

    /// Sets the reachability.
    pub fn set_reachability(&self, reachability: BackendReachability) {
        self.reachability.send_replace(reachability);
    }

    /// Removes all but the workspace of a sandbox and notifies watchers.
    pub fn lose_all_but_workspace(&self, id: &SandboxId) {
        self.change_state(id, BackendState::Remains);
    }

    /// Ends the main process of a running sandbox like a crash and notifies watchers.
    pub fn exit(&self, id: &SandboxId) {
        let state = BackendState::Exited {
            detail: "exit code 1".to_owned(),
        };
        self.change_state(id, state);
    }

    /// Ends the main process like [`Self::exit`], without notifying watchers.
    pub fn exit_without_event(&self, id: &SandboxId) {
        let state = BackendState::Exited {
            detail: "exit code 1".to_owned(),
        };
        self.lock().sandboxes.insert(id.clone(), state);
    }

    /// Makes a sandbox write a log line.
    pub fn append_log_line(&self, id: &SandboxId, line: &str) {
        self.log(id, |log| log.lines.push(format!("{line}\n")));
    }

    fn log(&self, id: &SandboxId, change: impl FnOnce(&mut FakeLog)) {
        self.logs
            .send_modify(|logs| change(logs.entry(id.clone()).or_default()));
    }

    /// Number of sandboxes in any form.
    pub fn count_sandboxes(&self) -> usize {
        self.lock().sandboxes.len()
    }

    /// Removes a sandbox and notifies watchers.
    pub fn remove_externally(&self, id: &SandboxId) {
        self.change_state(id, BackendState::Absent);
    }

    /// Number of calls of `start`, failures included.
    pub fn starts(&self) -> u32 {
        self.starts.load(Ordering::SeqCst)
    }

    /// Number of calls of `list`.
    pub fn lists(&self) -> u32 {
        self.lists.load(Ordering::SeqCst)
    }

    /// Number of different sandboxes that were ever started.
    pub fn count_started_sandboxes(&self) -> usize {
        self.lock().launched.len()
    }

    /// Changes the state of a sandbox that has ended, and notifies watchers.
    fn change_state(&self, id: &SandboxId, state: BackendState) {
        self.log(id, |log| log.has_ended = true);
        let mut backend = self.lock();
        if state == BackendState::Absent {
            backend.sandboxes.remove(id);
        } else {
            backend.sandboxes.insert(id.clone(), state.clone());
        }
        let fact = BackendFact {
            id: id.clone(),
            state,
        };
        backend
            .watchers
            .retain(|watcher| watcher.unbounded_send(fact.clone()).is_ok());
    }

    async fn wait_while_hanging(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.hanging.subscribe().wait_for(|hanging| !hanging).await;
    }

    fn check_reachable(&self) -> Result<(), SandboxError> {
        match &*self.reachability.borrow() {
            BackendReachability::Reachable => Ok(()),
            BackendReachability::Unreachable { detail } => Err(SandboxError::Unavailable {
                detail: detail.clone(),
                source: None,
            }),
        }
    }
}

fn endpoints(id: &SandboxId, port: u16) -> Option<SandboxEndpoints> {
    let url: Url = format!("http://127.0.0.1:{port}/").parse().ok()?;
    Some(SandboxEndpoints {
        agent_url: url.clone(),
        exposed_urls: vec![ExposedUrl {
            name: AGENT_SERVER.to_owned(),
            url,
            port,
        }],
        workspace: format!("/sandboxes/{id}/workspace"),
        has_proxy: true,
    })
}

#[async_trait]
impl SandboxBackend for FakeSandboxBackend {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn capabilities(&self) -> BackendCapabilities {
        BackendCapabilities {
            pause: true,
            isolated: false,
            replaces_session_key: !self.lock().keeps_environment,
        }
    }

    async fn prepare(
        &self,
        _spec: &SpecId,
        progress: &PrepareProgress,
    ) -> Result<(), SandboxError> {
        let preparing = self.lock().preparing.clone();
        if let Some((line, time)) = preparing {
            progress.report(&line);
            tokio::time::sleep(time).await;
        }
        self.wait_while_hanging().await;
        self.check_reachable()
    }

    fn watch_reachability(&self) -> BoxStream<'static, BackendReachability> {
        let reachability = self.reachability.subscribe();
        stream::unfold(
            (reachability, true),
            |(mut reachability, is_first)| async move {
                if !is_first {
                    reachability.changed().await.ok()?;
                }
                let now = reachability.borrow_and_update().clone();
                Some((now, (reachability, false)))
            },
        )
        .boxed()
    }

    async fn recipe(&self, spec: &SpecId) -> Result<String, SandboxError> {
        self.check_reachable()?;
        let backend = self.lock();
        if backend.has_no_image {
            return Err(SandboxError::Unavailable {
                detail: "the fake image is missing".to_owned(),
                source: None,
            });
        }
        let recipe = backend.recipe.clone();
        Ok(recipe.unwrap_or_else(|| format!("recipe of {spec}")))
    }

    async fn check(&self) -> Result<(), SandboxError> {
        self.wait_while_hanging().await;
        self.check_reachable()
    }
}

#[async_trait]
impl SandboxLifecycle for FakeSandboxBackend {
    async fn start(&self, launch: &SandboxLaunch) -> Result<SandboxEndpoints, SandboxError> {
        self.starts.fetch_add(1, Ordering::SeqCst);
        let starting = self.lock().starting.clone();
        if let Some((line, time)) = starting {
            launch.progress.report(&line);
            tokio::time::sleep(time).await;
        }
        self.wait_while_hanging().await;
        self.check_reachable()?;
        let fail = |left: u32| left.checked_sub(1);
        if self
            .failures
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, fail)
            .is_ok()
        {
            return Err(SandboxError::StartFailed {
                detail: "the fake backend fails this start".to_owned(),
                source: None,
            });
        }
        let mut backend = self.lock();
        if let Some(BackendState::Running(endpoints)) = backend.sandboxes.get(&launch.id) {
            return Ok(endpoints.clone());
        }
        backend.last_port = backend.last_port.max(9_000) + 1;
        let port = backend.port.unwrap_or(backend.last_port);
        let mut endpoints = endpoints(&launch.id, port).ok_or(SandboxError::NotFound)?;
        endpoints.has_proxy = !backend.has_no_proxy;
        endpoints
            .exposed_urls
            .extend(backend.extra_urls.iter().cloned());
        let is_first = backend.launched.insert(launch.id.clone());
        if is_first && launch.dormant {
            backend.born_dormant.insert(launch.id.clone());
        }
        let dormant = launch.dormant
            || backend.keeps_environment && backend.born_dormant.contains(&launch.id);
        backend.dormant_servers.boot(&endpoints.agent_url, dormant);
        backend
            .sandboxes
            .insert(launch.id.clone(), BackendState::Running(endpoints.clone()));
        Ok(endpoints)
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Option<BackendState>, SandboxError> {
        self.wait_while_hanging().await;
        self.check_reachable()?;
        Ok(self.lock().sandboxes.get(id).cloned())
    }

    async fn list(&self) -> Result<Vec<BackendFact>, SandboxError> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.wait_while_hanging().await;
        self.check_reachable()?;
        let backend = self.lock();
        let fact = |(id, state): (&SandboxId, &BackendState)| BackendFact {
            id: id.clone(),
            state: state.clone(),
        };
        Ok(backend.sandboxes.iter().map(fact).collect())
    }

    async fn stop(&self, id: &SandboxId) -> Result<(), SandboxError> {
        self.wait_while_hanging().await;
        self.check_reachable()?;
        let mut backend = self.lock();
        let state = backend
            .sandboxes
            .get_mut(id)
            .ok_or(SandboxError::NotFound)?;
        *state = BackendState::Stopped;
        self.log(id, |log| log.has_ended = true);
        Ok(())
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), SandboxError> {
        self.wait_while_hanging().await;
        let mut hanging = self.hanging_removals.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = hanging.wait_for(|hanging| !hanging).await;
        self.check_reachable()?;
        self.lock().sandboxes.remove(id);
        self.logs.send_modify(|logs| drop(logs.remove(id)));
        Ok(())
    }

    fn watch(&self) -> BoxStream<'static, BackendFact> {
        let (sender, receiver) = unbounded();
        self.lock().watchers.push(sender);
        receiver.boxed()
    }
}

#[async_trait]
impl SandboxReader for FakeSandboxBackend {
    async fn resolve(&self, id: &SandboxId, path: &str) -> Result<String, SandboxError> {
        let directory = format!("/sandboxes/{id}");
        let resolved =
            normalize_path(path).filter(|it| !it.starts_with('/') || is_below(it, &directory));
        resolved.ok_or(SandboxError::NotFound)
    }

    async fn list_warnings(&self, _: &SandboxId, _: &Url) -> Vec<String> {
        self.lock().warnings.clone()
    }

    async fn logs(
        &self,
        id: &SandboxId,
        keys: &[SecretString],
        tail: LogTail,
    ) -> Result<LogStream, SandboxError> {
        self.wait_while_hanging().await;
        self.check_reachable()?;
        let exists = self.lock().sandboxes.contains_key(id);
        let mut logs = self.logs.subscribe();
        let log = logs.borrow_and_update().get(id).cloned();
        if !exists {
            return Err(SandboxError::NotFound);
        }
        let begin = log.map_or(0, |log| log.lines.len());
        let begin = begin.saturating_sub(tail.lines as usize);
        let state = (logs, LogMask::new(keys), begin, id.clone());
        Ok(stream::unfold(state, move |state| async move {
            let (mut logs, mut mask, at, id) = state;
            loop {
                let log = logs.borrow_and_update().get(&id).cloned()?;
                if let Some(line) = log.lines.get(at) {
                    let line = mask.push(line.as_bytes());
                    return Some((Ok(line), (logs, mask, at + 1, id)));
                }
                if log.has_ended || !tail.follow {
                    return None;
                }
                logs.changed().await.ok()?;
            }
        })
        .boxed())
    }
}
