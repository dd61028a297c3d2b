//! Docker containers as sandboxes.
//!
//! Knows: a Docker engine (through bollard), its containers, volumes, networks, images and events. Must never know: HTTP,
//! storage, other backends, or who may do what.
//!
//! # How a sandbox is found
//!
//! * Its container and its volume are both named `agent-workspace-<id>`: the engine refuses a second one.
//! * Both carry labels of the installation, owner and template. A resource without them is never touched, whatever its
//!   name.
//! * The engine holds all other state. Every gap between two calls is therefore a state that an inspection shows (volume
//!   only, created, running, exited, being removed), and each operation starts with an inspection.
//!
//! # How a change is reported
//!
//! The engine's events, and a list after every reconnection, say *which* sandboxes to inspect; the inspection decides what
//! is reported (`watch`). The state cache remembers whether an exit was requested (`state_cache`). After a restart of the
//! service the exit code decides.

mod backend;
mod config;
mod container;
mod disk;
mod doctor;
mod engine;
mod images;
mod lifecycle;
mod logs;
mod network;
mod provider;
mod section;
mod settings;
mod specs;

pub use backend::DockerSandboxes;
pub use config::{
    BindMount, DockerConfig, DockerSpec, MetadataBlocking, PauseMode, RegistryCredentials,
    ResourceLimits,
};
pub use provider::DockerProvider;
pub use sandbox_provider::container_settings::ExposedPort;
