//! Directories and child processes as sandboxes: the backend of the tutorial docs/tutorials/sandbox-adapter.md.
//!
//! Knows: child processes of this service and their directories. Must never know: HTTP, storage, other backends, or who may
//! do what. Only tests use it: it forgets its processes when the service ends.

mod backend;
mod provider;

pub use backend::ExampleSandboxes;
pub use provider::ExampleProvider;
