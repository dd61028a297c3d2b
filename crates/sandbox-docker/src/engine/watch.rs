//! Follows the engine: its events and its reachability.
//!
//! Events say which sandboxes to inspect; the inspections decide what is reported. After every connection the cache is
//! compared with a list, which finds missed changes.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bollard::models::EventMessage;
use bollard::query_parameters::EventsOptionsBuilder;
use chrono::DateTime;
use domain::error::chain;
use domain::sandbox::{BackendReachability, BackendState};
use futures::{Stream, StreamExt};
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::backend::{DockerInner, PING_TIMEOUT};
use crate::container::labels;
use crate::engine::errors::{EngineError, EngineErrorKind};
use crate::lifecycle::state_cache::Recheck;

/// Backoff between attempts to reach the engine.
const MIN_RECONNECT_BACKOFF: Duration = Duration::from_millis(100);
const MAX_RECONNECT_BACKOFF: Duration = Duration::from_secs(1);
const PING_INTERVAL: Duration = Duration::from_secs(3);
/// Time without sandboxes after which the network is removed; creating one takes the engine a while.
const NETWORK_IDLE_GRACE: Duration = Duration::from_secs(15);
const RULES_INTERVAL: Duration = Duration::from_secs(60);
const MAX_PARALLEL_RECHECKS: usize = 8;

/// Actions that may change a sandbox's state. The engine does not send others (health checks, executions).
// Podman's filter has its own names: "died", "remove".
const ACTIONS: [&str; 8] = [
    "start", "die", "oom", "pause", "unpause", "destroy", "died", "remove",
];
const OUT_OF_MEMORY: &str = "oom";

const EVENTS: &str = "following the engine's events";

impl DockerInner {
    /// Stays connected to the engine. Never returns.
    pub(crate) async fn follow(self: Arc<Self>) -> Infallible {
        let mut backoff = MIN_RECONNECT_BACKOFF;
        loop {
            let Err(error) = self.run_connection(&mut backoff).await;
            let detail = error.detail();
            let is_new = self.reachability.send_if_modified(|reachability| {
                let lost = Some(BackendReachability::Unreachable {
                    detail: detail.clone(),
                });
                let is_new = *reachability != lost;
                *reachability = lost;
                is_new
            });
            if is_new {
                tracing::warn!(error = %chain(&error), "cannot reach the container engine; reconnecting. Check that it runs, and docker.socket");
            }
            sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_RECONNECT_BACKOFF);
        }
    }

    /// Connects, compares and follows events. Returns when the connection is lost.
    async fn run_connection(
        self: &Arc<Self>,
        backoff: &mut Duration,
    ) -> Result<Infallible, EngineError> {
        let info =
            self.engine
                .call_within("reading the engine's information", PING_TIMEOUT, |docker| {
                    docker.info()
                });
        let info = info.await?;
        self.states.compare(&self.overview().await?);
        *backoff = MIN_RECONNECT_BACKOFF;
        tracing::info!(
            version = info.server_version.as_deref(),
            storage = info.driver.as_deref(),
            "connected to the container engine"
        );
        self.reachability
            .send_replace(Some(BackendReachability::Reachable));
        self.restore_rules();
        // Replays events from before the list.
        let mut events = self.events(info.system_time.as_deref().and_then(since))?;
        let mut ticks = interval(PING_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut empty_since = Instant::now();
        let mut rules_restored_at = Instant::now();
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => self.handle_event(&event),
                    Some(Err(error)) => return Err(EngineError::new(EVENTS, error)),
                    None => return Err(EngineError::of(EVENTS, EngineErrorKind::Unreachable)),
                },
                _ = ticks.tick() => {
                    self.engine
                        .call_within("pinging the engine", PING_TIMEOUT, bollard::Docker::ping)
                        .await?;
                    self.remove_idle_network(&mut empty_since).await;
                    if rules_restored_at.elapsed() > RULES_INTERVAL && !self.states.is_empty() {
                        rules_restored_at = Instant::now();
                        self.restore_rules();
                    }
                }
            }
        }
    }

    /// Restores the packet filter's rules, which a restart of the engine or an operator may have removed.
    fn restore_rules(self: &Arc<Self>) {
        let inner = Arc::clone(self);
        self.tasks.spawn(async move {
            match inner.network.restore_rules().await {
                Ok(Some(network)) => inner.proxy.restore(&network).await,
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "cannot restore the packet filter's rules of the sandboxes' network; trying again later");
                }
            }
        });
    }

    fn events(
        &self,
        since: Option<String>,
    ) -> Result<impl Stream<Item = Result<EventMessage, bollard::errors::Error>> + use<>, EngineError>
    {
        let label = labels::of_instance(&self.config.instance);
        let filters = HashMap::from([
            ("type", vec!["container"]),
            ("label", vec![label.as_str()]),
            ("event", ACTIONS.to_vec()),
        ]);
        let mut options = EventsOptionsBuilder::new().filters(&filters);
        if let Some(since) = since {
            options = options.since(&since);
        }
        let client = self.engine.client()?.clone();
        Ok(Box::pin(client.events(Some(options.build()))))
    }

    fn handle_event(&self, event: &EventMessage) {
        let Some(labels) = event
            .actor
            .as_ref()
            .and_then(|actor| actor.attributes.as_ref())
        else {
            return;
        };
        let name = labels.get("name").map(String::as_str).unwrap_or_default();
        let Some(id) = labels::sandbox(&self.config.instance, name, labels) else {
            return;
        };
        let out_of_memory = event.action.as_deref() == Some(OUT_OF_MEMORY);
        self.states.mark(&id, out_of_memory);
    }

    /// Rechecks marked sandboxes. Never returns.
    pub(crate) async fn recheck_changed(self: Arc<Self>) -> Infallible {
        let slots = Arc::new(Semaphore::new(MAX_PARALLEL_RECHECKS));
        loop {
            self.states.marked.notified().await;
            for recheck in self.states.take_rechecks() {
                // The semaphore is never closed.
                let slot = Arc::clone(&slots).acquire_owned().await.ok();
                let inner = Arc::clone(&self);
                self.tasks.spawn(async move {
                    inner.recheck(recheck).await;
                    drop(slot);
                });
            }
        }
    }

    async fn recheck(&self, recheck: Recheck) {
        let state = self.observe(&recheck.id).await;
        let state =
            state.map(|state| state.map(|state| if recheck.is_late { late(state) } else { state }));
        match state {
            Ok(state) => recheck.finish(state, |fact| {
                if let BackendState::Exited { detail } = &fact.state {
                    // Without the sandbox's own output, which belongs to its owner.
                    let cause = detail.lines().next().unwrap_or_default();
                    tracing::warn!(sandbox.id = %fact.id, cause, "sandbox {} exited by itself", fact.id);
                }
                self.tasks.report(fact);
            }),
            // After a reconnection the comparison with the list repeats the check.
            Err(error) => {
                tracing::warn!(sandbox.id = %recheck.id, error = %chain(&error), "cannot inspect a sandbox that ended; trying again");
                let id = recheck.id.clone();
                drop(recheck);
                sleep(MAX_RECONNECT_BACKOFF).await;
                if matches!(*self.reachability.borrow(), Some(BackendReachability::Reachable)) {
                    self.states.mark(&id, false);
                }
            }
        }
    }

    /// Checks the disk limits regularly. Never returns.
    pub(crate) async fn watch_disk_limits(self: Arc<Self>) -> Infallible {
        let mut ticks = interval(self.config.disk_interval.max(MIN_RECONNECT_BACKOFF));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let over_limit = match self.disk.check_limits().await {
                Ok(over_limit) => over_limit,
                Err(error) => {
                    tracing::debug!(error = %chain(&error), "cannot check disk limits");
                    continue;
                }
            };
            for (id, cause) in over_limit {
                let inner = Arc::clone(&self);
                self.tasks.spawn(async move {
                    if let Err(error) = inner.stop_for_cause(&id, cause).await {
                        tracing::warn!(sandbox.id = %id, error = %chain(&error), "cannot stop a sandbox over its disk \
                             limit; the next check tries again");
                    }
                });
            }
        }
    }

    /// Removes the network after a while without sandboxes.
    async fn remove_idle_network(&self, empty_since: &mut Instant) {
        if !self.states.is_empty() {
            *empty_since = Instant::now();
        } else if empty_since.elapsed() > NETWORK_IDLE_GRACE {
            // Repeat later: an abandoned start may recreate the network.
            *empty_since = Instant::now();
            if let Err(error) = self.network.remove_if_unused().await {
                tracing::debug!(error = %chain(&error), "cannot remove the sandboxes' network yet");
            }
        }
    }
}

/// An engine stops its containers when it restarts; the exit code does not show that.
fn late(state: BackendState) -> BackendState {
    match state {
        BackendState::Exited { detail } => BackendState::Exited {
            detail: format!(
                "the container engine was unreachable, perhaps restarted; during that time {detail}"
            ),
        },
        other => other,
    }
}

/// The engine's time in the format of its event filter: seconds, a point, nanoseconds.
fn since(time: &str) -> Option<String> {
    let time = DateTime::parse_from_rfc3339(time).ok()?;
    Some(format!(
        "{}.{:09}",
        time.timestamp(),
        time.timestamp_subsec_nanos()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_converted_to_the_format_of_the_event_filter() {
        assert_eq!(
            since("2026-11-21T16:00:00.123456789Z").as_deref(),
            Some("1795276800.123456789")
        );
        assert_eq!(since("yesterday"), None);
    }
}
