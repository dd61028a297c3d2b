//! Sandbox specs on the wire; see `docs/reference/wire/sandbox-specs.md`.

use std::collections::BTreeMap;

use domain::clock::Timestamp;
use domain::id::SpecId;
use domain::sandbox::SandboxSpec;

use crate::decode::model;

/// A sandbox spec.
#[model(response = SandboxSpecInfo, from(spec: SandboxSpec))]
pub(crate) struct SpecDto {
    /// For containers, the image.
    id: SpecId,
    command: Option<Vec<String>>,
    created_at: Timestamp,
    /// Environment, without secret values.
    initial_env: BTreeMap<String, String>,
    /// The working directory of agents.
    working_dir: String,
}
