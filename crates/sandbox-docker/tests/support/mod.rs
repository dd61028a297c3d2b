//! A real engine, an image made without a registry, and a look at the engine that does not use the code under test.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::{CreateImageOptionsBuilder, TagImageOptionsBuilder};
use domain::id::{HostId, SandboxId, SpecId, UserId};
use domain::sandbox::SandboxLaunch;
use futures::StreamExt;
use sandbox_docker::{DockerConfig, DockerSpec, ExposedPort};
use secrecy::SecretString;
use url::Url;

/// An image of a static busybox, with `sh`, `httpd`, `dd`, … in `/bin`, and an empty `/www`.
pub(crate) const IMAGE: &str = "agent-workspace-test/busybox:1";

/// The engine that the tests use.
pub(crate) fn engine() -> Docker {
    Docker::connect_with_unix_defaults().expect(
        "no Docker engine: install one (apt-get install docker.io) and start dockerd; \
         its socket must be /var/run/docker.sock",
    )
}
