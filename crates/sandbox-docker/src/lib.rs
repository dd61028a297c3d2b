//! Sandboxes as Docker containers.
//!
//! Knows: a Docker engine (through bollard), its containers, volumes, networks, images and events.
//! Must never know: HTTP, storage, other backends, or who may do what.

mod config;

pub use config::{
    DockerConfig, DockerSpec, ExposedPort, Metadata, Mount, PauseMode, Registry, Resources,
};
