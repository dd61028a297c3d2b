//! The web application: whether there is one, and its installation in the background.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use application::BackgroundTasks;
use domain::error::chain;
use http_api::{HttpState, WebAppSite};
use tokio::runtime::Handle;
use tokio::time::sleep;
use url::Url;
use web_app::{InstallSource, Installer, Package, WebApp, WebAppError, WebAppSlot, WebAppStatus};

use crate::config::Config;

const MIN_RETRY_BACKOFF: Duration = Duration::from_secs(30);
const MAX_RETRY_BACKOFF: Duration = Duration::from_secs(60 * 60);

/// The web application of a service with this public URL; `None` if it has none.
pub(super) fn site(config: &Config, public_url: &Url) -> Option<WebAppSite> {
    if !config.web.is_web_served(config.auth.mode) {
        return None;
    }
    if public_url.path() != "/" {
        tracing::info!(
            "the web application is off: http.public_url has the path {}, and the application works at the root of a host only",
            public_url.path()
        );
        return None;
    }
    Some(WebAppSite {
        slot: WebAppSlot::default(),
        public_url: public_url.clone(),
        is_url_configured: config.http.is_url_configured(),
        sandbox_url: config.http.sandbox_url.clone(),
    })
}

/// Installs the web application if needed, and serves it from then on. Failures never stop the service.
pub(crate) fn spawn_web_app(config: &Config, http: &HttpState, tasks: &BackgroundTasks) {
    let Some(slot) = http.web_app().cloned() else {
        return;
    };
    let mut web = config.web.clone();
    web.dir = web.dir.or_else(packaged_build);
    let installer = installer(&config.data_dir);
    let source = InstallSource::Registry(web.registry.clone());
    tasks.spawn(async move {
        let (mut backoff, mut logged) = (MIN_RETRY_BACKOFF, None);
        loop {
            let error = match provide(web.dir.as_deref(), &installer, &source, &slot).await {
                Ok(()) => return,
                Err(error) => chain(&error),
            };
            slot.set(WebAppStatus::Failed);
            if logged.as_ref() == Some(&error) {
                tracing::debug!(error, "the web application is still not available");
            } else {
                tracing::warn!(
                    error,
                    "the web application is not available, and the service tries again: {}",
                    advice(web.dir.as_deref(), &web.registry)
                );
                logged = Some(error);
            }
            sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_RETRY_BACKOFF);
        }
    });
}

fn advice(dir: Option<&Path>, registry: &Url) -> String {
    match dir {
        Some(dir) => format!(
            "set WORKSPACE_WEB__DIR to the directory of a build ({} is none), or leave it empty",
            dir.display()
        ),
        None => format!(
            "make {registry} reachable or set WORKSPACE_WEB__REGISTRY, or install the package from a file with `agent-workspace \
             web install --from FILE`, or set WORKSPACE_WEB__ENABLED=off"
        ),
    }
}

async fn provide(
    dir: Option<&Path>,
    installer: &Installer,
    source: &InstallSource,
    slot: &WebAppSlot,
) -> Result<(), WebAppError> {
    let dir = if let Some(dir) = dir {
        dir.to_owned()
    } else {
        let report = |step: &str| {
            tracing::info!(step, "installing the web application");
            slot.set(WebAppStatus::Installing {
                step: step.to_owned(),
            });
        };
        installer.install(source, &report).await?
    };
    let shown = dir.display().to_string();
    let app = Handle::current().spawn_blocking(move || WebApp::load(&dir));
    // It does not panic, and is not cancelled while the runtime works.
    let Ok(app) = app.await else { return Ok(()) };
    let app = Arc::new(app?);
    let (files, bytes) = app.size();
    slot.set(WebAppStatus::Ready(app));
    tracing::info!(dir = shown, files, bytes, "the web application is served");
    Ok(())
}

/// The pinned build that a package of the service has: below `share`, beside the directory of the program.
fn packaged_build() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let prefix = program.parent()?.parent()?;
    installer(&prefix.join("share/agent-workspace")).find()
}

fn installer(data_dir: &Path) -> Installer {
    Installer::new(Package::PINNED, data_dir)
}

/// Installs the pinned package now; returns the directory of the build.
pub(crate) async fn install_web_app(
    config: &Config,
    registry: Option<Url>,
    file: Option<PathBuf>,
) -> anyhow::Result<PathBuf> {
    let registry = registry.unwrap_or_else(|| config.web.registry.clone());
    let source = file.map_or(InstallSource::Registry(registry), InstallSource::File);
    let report = |step: &str| tracing::info!(step, "installing the web application");
    let package = Package::PINNED;
    installer(&config.data_dir)
        .install(&source, &report)
        .await
        .with_context(|| format!("cannot install {} {}", package.name, package.version))
}
