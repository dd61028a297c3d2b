//! Sandboxes as Docker containers.
//!
//! Knows: a Docker engine (through bollard), its containers, volumes, networks, images and events.
//! Must never know: HTTP, storage, other backends, or who may do what.
//!
//! # How a sandbox is found again
//!
//! * Its container and its volume are both named `agent-workspace-<id>`: the engine refuses a second one.
//! * Both carry the labels of this installation, owner and template. What lacks them is never touched, whatever its name.
//! * Everything else is the engine's own knowledge: there is no file of ours, so every gap between two calls is a state
//!   that an inspection shows (volume only, created, running, exited, being removed), and each operation begins with it.
//!
//! # How a change is told
//!
//! The engine's events, and after every connection a list, say *where* to look; what is told is what the look found
//! (`watch`). Whether an end was asked for is remembered by this object (`memory`), and guessed from the exit code after
//! the service was restarted.

mod callback_check;
mod backend;
mod config;
mod container;
mod disk;
mod endpoint;
mod engine;
mod environment;
mod errors;
mod exit;
mod observe;
mod images;
mod labels;
mod published_ports;
mod lock;
mod logs;
mod state_cache;
mod metadata;
mod network;
mod log_reader;
mod recipe;
mod specs;
mod start;
mod stop;
mod survey;
mod watch;

pub use backend::DockerSandboxes;
pub use config::{
    DockerConfig, DockerSpec, ExposedPort, MetadataBlocking, BindMount, PauseMode, RegistryCredentials, ResourceLimits,
};
pub use specs::DockerSpecs;
pub use survey::Survey;
