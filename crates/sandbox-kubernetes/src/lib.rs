//! Pods of a Kubernetes cluster as sandboxes, by the `Sandbox` resource of kubernetes-sigs/agent-sandbox or as plain pods.
//!
//! Knows: the objects of a cluster, and what the API server and the controller of `Sandbox` resources do with them. Must never
//! know: HTTP of the service, storage, other backends, or who may do what.
//!
//! ```text
//!   claim (PVC): the workspace, and what the service records ──┐
//!   Secret: the environment with its keys ─────────────────────┼──► pod
//!   Sandbox: its pod template and its mode (or no such object) ┘
//! ```
//!
//! Each operation looks at the cluster, does the next step, and looks again. So it continues whatever an earlier one left.

mod backend;
mod causes;
mod certificates;
mod changes;
mod cluster;
mod config;
mod doctor;
mod end;
mod environment;
mod errors;
mod lifecycle;
mod logs;
mod manifest;
mod names;
mod provider;
mod proxy;
mod section;
mod settings;
mod state;
mod walls;
mod watch;

pub use backend::KubernetesSandboxes;
pub use config::{ClusterAccess, KubernetesConfig, KubernetesSpec, PodEngine};
pub use provider::KubernetesProvider;
pub use sandbox_provider::container_settings::ExposedPort;
