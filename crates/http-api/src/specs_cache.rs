//! The cached response with all sandbox specs.

use std::sync::{Arc, Mutex, PoisonError};

use actix_web::web::Bytes;
use domain::sandbox::SandboxSpec;

use crate::problem::Problem;

/// Caches the response with all specs; it is serialized once per list.
#[derive(Default)]
pub(crate) struct SpecsCache(Mutex<Option<(Arc<[SandboxSpec]>, Bytes)>>);

impl SpecsCache {
    /// The response for this list: the cached one, or what `write` makes.
    pub(crate) fn of(
        &self,
        specs: &Arc<[SandboxSpec]>,
        write: impl FnOnce() -> Result<Bytes, Problem>,
    ) -> Result<Bytes, Problem> {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The cache holds its list, so another list cannot have the same address.
        if let Some((of, bytes)) = &*shown
            && Arc::ptr_eq(of, specs)
        {
            return Ok(bytes.clone());
        }
        let bytes = write()?;
        *shown = Some((Arc::clone(specs), bytes.clone()));
        Ok(bytes)
    }
}
