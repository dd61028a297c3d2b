//! Templates that a test may change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::id::SpecId;
use domain::sandbox::{SandboxError, SandboxSpec, SandboxSpecCatalog};

/// A catalogue; at first with the one spec `fake`, without limits.
#[derive(Debug)]
pub struct FakeSpecs(Mutex<Vec<SandboxSpec>>);

impl Default for FakeSpecs {
    fn default() -> Self {
        Self(Mutex::new(vec![Self::spec("fake")]))
    }
}

impl FakeSpecs {
    /// A spec without limits.
    ///
    /// # Panics
    /// When the name is none.
    pub fn spec(name: &str) -> SandboxSpec {
        SandboxSpec {
            id: SpecId::parse(name).expect("a word is a spec id"),
            command: None,
            created_at: Timestamp::from_micros(0),
            initial_env: BTreeMap::new(),
            working_dir: "/workspace".to_owned(),
            idle_stop: None,
            lifetime: None,
        }
    }

    /// From now on there are these.
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
