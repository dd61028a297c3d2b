//! Pulls one image.

use std::pin::pin;
use std::time::Duration;

use bollard::Docker;
use bollard::auth::DockerCredentials;
use bollard::query_parameters::CreateImageOptionsBuilder;
use domain::crash_point;
use futures::StreamExt;
use secrecy::ExposeSecret;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use super::failure::PullError;
use super::progress::PullProgress;
use super::reference;
use crate::config::DockerConfig;
use crate::engine::Engine;
use crate::engine::errors::EngineError;

const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Pulls the image and verifies that it exists.
pub(super) async fn run(
    engine: &Engine,
    config: &DockerConfig,
    image: &str,
    line_sender: &watch::Sender<String>,
) -> Result<(), PullError> {
    let started_at = Instant::now();
    tracing::info!(image, "pulling an image");
    let outcome = match fetch(engine, config, image, line_sender).await {
        Ok(()) if !matches!(engine.image(image).await, Ok(Some(_))) => {
            Err(PullError::ended_early(image))
        }
        outcome => outcome,
    };
    match &outcome {
        Ok(()) => {
            let seconds = started_at.elapsed().as_secs();
            tracing::info!(image, seconds, "pulled an image");
        }
        Err(error) => tracing::error!(image, error = error.detail, "cannot pull an image"),
    }
    outcome
}

/// Reads the engine's updates to their end. Disconnecting aborts the pull on the engine, so the task is never cancelled.
async fn fetch(
    engine: &Engine,
    config: &DockerConfig,
    image: &str,
    line_sender: &watch::Sender<String>,
) -> Result<(), PullError> {
    let failed = |error| PullError::new(image, error);
    let docker = readable_credentials(engine.client().map_err(failed)?.clone());
    let options = CreateImageOptionsBuilder::new()
        .from_image(&reference::with_tag(image))
        .build();
    crash_point::before("pulling the image");
    let mut updates = pin!(docker.create_image(Some(options), None, credentials(config, image)));
    let mut layers = PullProgress::default();
    let mut last_progress = Instant::now();
    let mut last_log = last_progress;
    loop {
        let next = updates.next().with_subscriber(NoSubscriber::default());
        let Ok(next) = timeout_at(last_progress + config.pull_stall, next).await else {
            return Err(PullError::stalled(image, config.pull_stall.as_secs()));
        };
        let Some(info) = next else {
            crash_point::after("pulling the image");
            return Ok(());
        };
        let info = info.map_err(|error| failed(EngineError::new("pulling the image", error)))?;
        if layers.update(&info) {
            last_progress = Instant::now();
        }
        let line = layers.line(image);
        if last_log.elapsed() >= LOG_INTERVAL {
            last_log = Instant::now();
            tracing::info!("{line}");
        }
        line_sender.send_if_modified(|current| {
            let is_new = *current != line;
            *current = line;
            is_new
        });
    }
}

/// The configured credentials, if they belong to the image's registry: no other registry may receive them.
fn credentials(config: &DockerConfig, image: &str) -> Option<DockerCredentials> {
    let registry = config.registry.as_ref()?;
    Some(DockerCredentials {
        serveraddress: Some(reference::login(image, registry)?),
        username: Some(registry.username.clone()),
        password: Some(registry.password.expose_secret().to_owned()),
        ..DockerCredentials::default()
    })
}

/// Engines expect this header in URL-safe base64 and ignore credentials that they cannot decode; bollard 0.21.1 writes
/// standard base64.
fn readable_credentials(docker: Docker) -> Docker {
    const HEADER: &str = "x-registry-auth";
    docker.with_request_modifier(|mut request| {
        let header = request.headers().get(HEADER);
        let text = header.and_then(|value| value.to_str().ok());
        let value = text.map(|text| text.replace('+', "-").replace('/', "_").parse());
        if let Some(Ok(value)) = value {
            request.headers_mut().insert(HEADER, value);
        }
        request
    })
}
