//! Disk limits: set by the engine if its storage supports them, and measured in any case, because no engine limits volumes.

mod usage;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bollard::Docker;
use bollard::models::SystemInfo;
use domain::error::chain;
use domain::id::SandboxId;
use sandbox_provider::{OverLimitGrace, over_disk_limit};
use tokio::sync::{Mutex, OnceCell};

use crate::config::{DockerConfig, DockerSpec};
use crate::container::labels;
use crate::engine::Engine;
use crate::engine::errors::{EngineError, EngineErrorKind};

/// Engines run one measurement at a time, so a measurement may fail because of another client; single failures are not
/// logged.
const WARN_AFTER_FAILURES: u32 = 5;

#[derive(Debug)]
pub(crate) struct DiskMonitor {
    engine: Engine,
    config: Arc<DockerConfig>,
    /// Whether the engine's storage may support limits of containers.
    may_limit: OnceCell<bool>,
    has_refused: AtomicBool,
    /// Also serializes measurements.
    grace: Mutex<OverLimitGrace>,
    failures: AtomicU32,
}

impl DiskMonitor {
    /// Sends no request yet.
    pub(crate) fn new(engine: Engine, config: Arc<DockerConfig>) -> Self {
        Self {
            engine,
            config,
            may_limit: OnceCell::new(),
            has_refused: AtomicBool::new(false),
            grace: Mutex::default(),
            failures: AtomicU32::new(0),
        }
    }

    /// `storage_opt` for a container of this template: limits changes to the image, not the volume.
    pub(crate) async fn storage_options(
        &self,
        spec: &DockerSpec,
    ) -> Option<HashMap<String, String>> {
        let limit = spec.resources.disk?;
        if self.has_refused.load(Ordering::Relaxed) {
            return None;
        }
        let may_limit = self.may_limit.get_or_try_init(|| async {
            let info = self
                .engine
                .call("reading the engine's storage driver", Docker::info);
            info.await.map(|info| self::may_limit(&info))
        });
        // An unreachable engine fails the creation anyway.
        let may_limit = *may_limit.await.unwrap_or(&false);
        may_limit.then(|| HashMap::from([("size".to_owned(), limit.to_string())]))
    }

    /// Whether a creation failed because of [`storage_options`](Self::storage_options). Later creations omit them, and this
    /// one can be repeated.
    pub(crate) fn is_refusal(&self, error: &EngineError) -> bool {
        let message = error.message().to_ascii_lowercase();
        let is_refusal = ["storage-opt", "storage opt", "quota"]
            .iter()
            .any(|word| message.contains(word));
        if is_refusal {
            self.has_refused.store(true, Ordering::Relaxed);
            tracing::info!(
                engine_message = error.message(),
                "the engine's storage cannot limit containers: the service measures disk usage instead"
            );
        }
        is_refusal
    }

    /// Measures all running sandboxes once. Returns those to stop, with the cause for their owners.
    pub(crate) async fn check_limits(&self) -> Result<Vec<(SandboxId, String)>, EngineError> {
        let measured = self.measure_once().await;
        match &measured {
            Ok(_) => self.failures.store(0, Ordering::Relaxed),
            Err(error) => {
                let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
                let is_unreachable = matches!(
                    error.kind,
                    EngineErrorKind::Unreachable | EngineErrorKind::Forbidden
                );
                if failures == WARN_AFTER_FAILURES && !is_unreachable {
                    tracing::warn!(
                        error = %chain(&error),
                        engine_message = error.message(),
                        "disk limits of sandboxes are not enforced, because the engine does not report disk usage: check the engine's log"
                    );
                }
            }
        }
        measured
    }

    async fn measure_once(&self) -> Result<Vec<(SandboxId, String)>, EngineError> {
        let mut grace = self.grace.lock().await;
        let limits = self.limits().await?;
        if limits.is_empty() {
            grace.sandboxes_to_stop(None);
            return Ok(Vec::new());
        }
        let usage = usage::measure(&self.engine).await?;
        let used = usage.by_name();
        let used = |id: &SandboxId| {
            let name = labels::name(id);
            used.get(name.as_str()).copied().unwrap_or_default()
        };
        let measured = limits
            .iter()
            .map(|(id, limit)| (id.clone(), used(id) > *limit));
        let over = grace.sandboxes_to_stop(measured).into_iter();
        Ok(over
            .map(|id| {
                let limit = limits.get(&id).copied().unwrap_or_default();
                let cause = over_disk_limit(used(&id), limit, "the disk limit of its template");
                (id, cause)
            })
            .collect())
    }

    /// The limits of running sandboxes that have one.
    async fn limits(&self) -> Result<HashMap<SandboxId, u64>, EngineError> {
        let specs = self.config.specs.iter();
        let by_spec: HashMap<&str, u64> = specs
            .filter_map(|spec| Some((spec.id.as_str(), spec.resources.disk?)))
            .collect();
        if by_spec.is_empty() {
            return Ok(HashMap::new());
        }
        let instance = &self.config.instance;
        let running = self.engine.containers(instance, true).await?.into_iter();
        let running = running.filter_map(|container| {
            let (labels, names) = (container.labels?, container.names?);
            let id = labels::sandbox(instance, names.first()?, &labels)?;
            let limit = by_spec.get(labels.get(labels::SPEC)?.as_str())?;
            Some((id, *limit))
        });
        Ok(running.collect())
    }
}

/// Whether the engine may support a limit. overlay2 needs a mount option that the engine does not report; the creation of a
/// container fails without it.
pub(crate) fn may_limit(info: &SystemInfo) -> bool {
    match info.driver.as_deref() {
        Some("btrfs" | "zfs") => true,
        Some("overlay2") => {
            let mut status = info.driver_status.iter().flatten();
            status.any(|pair| pair == &["Backing Filesystem", "xfs"])
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_storage_drivers_may_limit_containers() {
        let info = |driver: &str, filesystem: &str| SystemInfo {
            driver: Some(driver.to_owned()),
            driver_status: Some(vec![
                vec!["Backing Filesystem".to_owned(), filesystem.to_owned()],
                vec!["Supports d_type".to_owned(), "true".to_owned()],
            ]),
            ..SystemInfo::default()
        };
        assert!(may_limit(&info("overlay2", "xfs")));
        assert!(may_limit(&info("btrfs", "")));
        assert!(may_limit(&info("zfs", "")));
        assert!(!may_limit(&info("overlay2", "extfs")));
        assert!(!may_limit(&info("overlayfs", "")));
        assert!(!may_limit(&SystemInfo::default()));
    }
}
