//! Sandbox specs on the wire (contract v1, section 2.4).

use std::collections::BTreeMap;

use domain::clock::Timestamp;
use domain::id::SpecId;
use domain::sandbox::SandboxSpec;
use serde::Serialize;
use utoipa::ToSchema;

/// A template for sandboxes.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = SandboxSpecInfo)]
pub struct SpecDto {
    /// For containers the image.
    #[schema(value_type = String)]
    id: SpecId,
    /// What runs in it.
    #[schema(required)]
    command: Option<Vec<String>>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Environment, without secret values.
    initial_env: BTreeMap<String, String>,
    /// Where agents work.
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
