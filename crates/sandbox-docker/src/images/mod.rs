//! Ensures that the engine has the images of templates. Concurrent starts share one pull.
//!
//! ```text
//!   ensure ── known? ──yes──► done                      (for a while a start makes no call)
//!                │no
//!             inspect ─present─► known
//!                │missing
//!             join or begin the pull ──► lines to every waiter ──► known, or an error (which is not cached)
//! ```

mod failure;
mod progress;
mod pull;
mod reference;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::sandbox::{PrepareProgress, SandboxError};
use futures::future::{BoxFuture, FutureExt, Shared};
use tokio::runtime::Handle;
use tokio::sync::watch;

use self::failure::PullError;
use crate::config::{DockerConfig, DockerSpec};
use crate::engine::Engine;

/// How long an image is assumed to exist after it was seen. A wrong assumption costs one failed start.
const PRESENCE_CACHE_TTL: Duration = Duration::from_secs(60);

/// Shortest interval of progress reports to a waiter.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, Clone)]
pub(crate) struct Images(Arc<ImageCache>);

#[derive(Debug)]
struct ImageCache {
    engine: Engine,
    config: Arc<DockerConfig>,
    /// The runtime of pulls, which outlive requests and their threads.
    runtime: Handle,
    state: Mutex<ImageCacheState>,
}

/// Images by their name in the templates, so the map is bounded.
#[derive(Debug, Default)]
struct ImageCacheState {
    known: HashMap<String, Instant>,
    pulls: HashMap<String, PullInProgress>,
}

/// A pull in progress. It is independent of requests: a caller that gives up does not stop it.
#[derive(Debug, Clone)]
struct PullInProgress {
    line: watch::Receiver<String>,
    outcome: Shared<BoxFuture<'static, Result<(), Arc<PullError>>>>,
}

impl Images {
    /// Sends no request yet. Pulls run on the current runtime.
    pub(crate) fn new(engine: Engine, config: Arc<DockerConfig>) -> Self {
        Self(Arc::new(ImageCache {
            engine,
            config,
            runtime: Handle::current(),
            state: Mutex::default(),
        }))
    }

    pub(crate) async fn ensure(
        &self,
        spec: &DockerSpec,
        progress: &PrepareProgress,
    ) -> Result<(), SandboxError> {
        let image = spec.image.as_str();
        if self.0.lock().is_known(image) {
            return Ok(());
        }
        if self.0.engine.image(image).await?.is_some() {
            self.0.lock().remember(image);
            return Ok(());
        }
        match self.join(image) {
            Some(pull) => pull.wait(progress).await,
            None => Ok(()),
        }
    }

    /// Forgets an image: the engine reported that it does not exist.
    pub(crate) fn forget(&self, image: &str) {
        self.0.lock().known.remove(image);
    }

    /// The running pull, or a new one. `None` if one has just succeeded.
    fn join(&self, image: &str) -> Option<PullInProgress> {
        let mut state = self.0.lock();
        if state.is_known(image) {
            return None;
        }
        let pull = match state.pulls.get(image) {
            // A failed pull removes itself; one that panicked could not.
            Some(pull) if pull.outcome.peek().is_none() => pull.clone(),
            _ => self.begin(image),
        };
        state.pulls.insert(image.to_owned(), pull.clone());
        Some(pull)
    }

    fn begin(&self, image: &str) -> PullInProgress {
        let (line_sender, line) = watch::channel(format!("pulling {image}"));
        let (images, name) = (self.clone(), image.to_owned());
        let task = self.0.runtime.spawn(async move {
            let outcome = pull::run(&images.0.engine, &images.0.config, &name, &line_sender).await;
            let mut state = images.0.lock();
            state.pulls.remove(&name);
            if outcome.is_ok() {
                state.remember(&name);
            }
            outcome
        });
        let name = image.to_owned();
        let outcome = task.map(move |result| {
            let outcome = result.unwrap_or_else(|_| Err(PullError::ended_early(&name)));
            outcome.map_err(Arc::new)
        });
        PullInProgress {
            line,
            outcome: outcome.boxed().shared(),
        }
    }
}

impl ImageCache {
    fn lock(&self) -> MutexGuard<'_, ImageCacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ImageCacheState {
    fn is_known(&self, image: &str) -> bool {
        let seen_at = self.known.get(image);
        seen_at.is_some_and(|seen_at| seen_at.elapsed() < PRESENCE_CACHE_TTL)
    }

    fn remember(&mut self, image: &str) {
        self.known.insert(image.to_owned(), Instant::now());
    }
}

impl PullInProgress {
    /// Waits for the end, and reports every line from now on.
    async fn wait(mut self, progress: &PrepareProgress) -> Result<(), SandboxError> {
        loop {
            let line = self.line.borrow_and_update().clone();
            progress.report(&line);
            tokio::select! {
                // The last line arrives with the outcome, which says more.
                biased;
                outcome = self.outcome.clone() => {
                    return outcome.map_err(|error| error.to_sandbox_error());
                }
                () = next_line(&mut self.line) => {}
            }
        }
    }
}

/// Returns when there is a new line to report. Never returns after the last one.
async fn next_line(line: &mut watch::Receiver<String>) {
    tokio::time::sleep(PROGRESS_INTERVAL).await;
    if line.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
