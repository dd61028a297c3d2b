//! What runs beside requests.

use std::sync::Arc;

use domain::sandbox::Progress;
use futures::StreamExt;

use crate::{App, Inner};

/// Starts the loops: start worker, sandbox keeper (facts and relist), syncer. Call once, after the store is open. What an
/// earlier life of this process left behind is picked up at once.
pub fn spawn(app: &App) {
    let inner = &app.inner;
    inner.tasks.spawn(watch(Arc::clone(inner)));
    inner.tasks.spawn(relist(Arc::clone(inner)));
    inner.tasks.spawn(inner.syncer.clone().run());
    inner.tasks.spawn(app.starts.clone().work());
}

/// Gets the backend ready (downloads on first use) so that the first start finds it so. Failing here is not fatal: the
/// start that needs it says why.
pub fn prepare(app: &App) {
    let inner = Arc::clone(&app.inner);
    app.inner.tasks.spawn(async move {
        let spec = match inner.ports.specs.list().await {
            Ok(specs) => specs.into_iter().next(),
            Err(error) => return tracing::warn!(%error, "no sandbox specs"),
        };
        if let Some(spec) = spec
            && let Err(error) = inner.ports.backend.prepare(&spec.id, &Progress::silent()).await
        {
            tracing::warn!(%error, "the sandbox backend is not ready; starts will fail until it is");
        }
    });
}

/// Facts that the backend reports, one after the other per sandbox (the keeper's lock), many sandboxes at once.
async fn watch(inner: Arc<Inner>) {
    let facts = inner.ports.backend.watch();
    facts
        .for_each_concurrent(32, |fact| {
            let keeper = inner.keeper.clone();
            async move {
                if let Err(error) = keeper.note_fact(&fact).await {
                    tracing::warn!(sandbox.id = %fact.id, %error, "fact not recorded; the relist will");
                }
            }
        })
        .await;
}

async fn relist(inner: Arc<Inner>) {
    let mut tick = tokio::time::interval(inner.policy.relist_interval);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // Our own restart is a gap: ask every running sandbox what happened meanwhile.
    inner.syncer.request_all().await;
    loop {
        tick.tick().await;
        if let Err(error) = inner.keeper.relist(&inner.tasks).await {
            tracing::warn!(%error, "cannot compare sandboxes with their rows; trying again");
        }
    }
}
