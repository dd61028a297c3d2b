//! A fake catalogue of sandbox specs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::id::SpecId;
use domain::sandbox::{SandboxError, SandboxSpec, SandboxSpecCatalog};

/// A catalogue that holds the spec `fake`, without limits, at first.
#[derive(Debug)]
pub struct FakeSpecs(Mutex<Vec<SandboxSpec>>);

impl Default for FakeSpecs {
    fn default() -> Self {
        Self(Mutex::new(vec![Self::spec("fake")]))
    }
}

impl FakeSpecs {
    /// A spec with this id.
    ///
    /// # Panics
    /// If the name is not a valid spec id.
    pub fn spec(name: &str) -> SandboxSpec {
        SandboxSpec {
            id: SpecId::parse(name).expect("valid spec id"),
            command: None,
            created_at: Timestamp::from_micros(0),
            initial_env: BTreeMap::new(),
            working_dir: "/workspace".to_owned(),
            idle_stop: None,
            lifetime: None,
            egress: None,
            conversation_budget: None,
        }
    }

    /// Sets the specs.
    pub fn set(&self, specs: Vec<SandboxSpec>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = specs;
    }
}

#[async_trait]
impl SandboxSpecCatalog for FakeSpecs {
    async fn list(&self) -> Result<Arc<[SandboxSpec]>, SandboxError> {
        let specs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(specs.as_slice().into())
    }
}
