//! [`DockerSandboxes`]: the port, each operation a task that its caller cannot leave half done.

use std::sync::Arc;

use domain::sandbox::SandboxError;

use crate::config::DockerConfig;
use crate::engine::Engine;

/// Sandboxes that are containers of a Docker engine.
#[derive(Debug)]
pub struct DockerSandboxes {
    inner: Arc<Inner>,
}

/// What operations and watchers share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: Arc<DockerConfig>,
    pub(crate) engine: Engine,
}

impl DockerSandboxes {
    /// Checks the configuration. The engine need not be there yet.
    pub fn new(config: DockerConfig) -> Result<Self, SandboxError> {
        let engine = Engine::new(&config)?;
        Ok(Self {
            inner: Arc::new(Inner {
                config: Arc::new(config),
                engine,
            }),
        })
    }
}
