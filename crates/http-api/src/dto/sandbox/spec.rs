//! Sandbox specs on the wire; see `docs/reference/wire/sandbox-specs.md`.

use std::collections::BTreeMap;

use domain::clock::Timestamp;
use domain::id::SpecId;
use domain::sandbox::SandboxSpec;
use serde::Serialize;
use utoipa::ToSchema;

/// A sandbox spec.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = SandboxSpecInfo)]
pub struct SpecDto {
    /// For containers, the image.
    #[schema(value_type = String)]
    id: SpecId,
    /// The command.
    #[schema(required)]
    command: Option<Vec<String>>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Environment, without secret values.
    initial_env: BTreeMap<String, String>,
    /// The working directory of agents.
    working_dir: String,
}

impl From<SandboxSpec> for SpecDto {
    fn from(spec: SandboxSpec) -> Self {
        Self {
            id: spec.id,
            command: spec.command,
            created_at: spec.created_at,
            initial_env: spec.initial_env,
            working_dir: spec.working_dir,
        }
    }
}
