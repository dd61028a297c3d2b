//! Sandboxes as Docker containers.
//!
//! Knows: a Docker engine (through bollard), its containers, volumes, networks, images and events.
//! Must never know: HTTP, storage, other backends, or who may do what.

mod advice;
mod backend;
mod config;
mod container;
mod disk;
mod engine;
mod environment;
mod errors;
mod exit;
mod facts;
mod images;
mod labels;
mod locate;
mod lock;
mod logs;
mod memory;
mod metadata;
mod network;
mod specs;
mod start;
mod stop;
mod survey;
mod watch;

pub use backend::DockerSandboxes;
pub use config::{
    DockerConfig, DockerSpec, ExposedPort, Metadata, Mount, PauseMode, Registry, Resources,
};
pub use specs::DockerSpecs;
pub use survey::Survey;
