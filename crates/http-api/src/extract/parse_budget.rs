//! Parses JSON under a memory budget.
//!
//! A JSON text may take many times its length in memory (`[0,0,…]`: 36 times, `[[0],[0],…]`: almost 100 times). Its weight is
//! therefore estimated first, in one pass that allocates nothing. Too heavy texts are refused and light ones parsed in
//! place. All others wait for their share of one budget of the process, and are parsed on a blocking thread.

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::Bytes;
use domain::json::estimate_memory_bytes;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::decode::{JsonError, parse_json};
use crate::problem::Problem;

/// Heaviest text, in bytes of memory, that is parsed in place.
const MAX_INLINE_WEIGHT_BYTES: usize = 256 * 1024;
/// Heaviest text that is parsed at all, in bytes of memory.
pub(super) const MAX_DOCUMENT_WEIGHT_BYTES: usize = 64 * 1024 * 1024;
/// The budget of all heavy texts, in units.
const BUDGET_UNITS: usize = 4 * MAX_DOCUMENT_WEIGHT_BYTES / BUDGET_UNIT_BYTES;
const BUDGET_UNIT_BYTES: usize = 1024;
/// Longest wait for a share of the budget.
const BUDGET_TIMEOUT: Duration = Duration::from_secs(10);

/// The memory budget for parsing; one for the process.
#[derive(Debug, Clone)]
pub(crate) struct ParseBudget {
    units: Arc<Semaphore>,
}

/// A share of the budget, returned when dropped. Light texts have none.
#[derive(Debug)]
pub(crate) struct ParsePermit {
    _permit: Option<OwnedSemaphorePermit>,
}

impl ParseBudget {
    pub(crate) fn new() -> Self {
        Self {
            units: Arc::new(Semaphore::new(BUDGET_UNITS)),
        }
    }

    /// Waits for the share of a text with this weight; 503 after the timeout.
    pub(super) async fn permit(&self, weight: usize) -> Result<ParsePermit, Problem> {
        if weight <= MAX_INLINE_WEIGHT_BYTES {
            return Ok(ParsePermit { _permit: None });
        }
        let units = weight.div_ceil(BUDGET_UNIT_BYTES).min(BUDGET_UNITS);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let waiting = Arc::clone(&self.units).acquire_many_owned(units);
        match tokio::time::timeout(BUDGET_TIMEOUT, waiting).await {
            Ok(Ok(permit)) => Ok(ParsePermit {
                _permit: Some(permit),
            }),
            _ => Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "Too many large requests are being read. Try again.",
            )
            .because("the memory for reading large bodies is in use")),
        }
    }
}

/// Runs `read` on a blocking thread if the text is heavy. The permit moves along, and stays held if the caller goes away.
pub(super) async fn run_off_thread<T: Send + 'static>(
    permit: ParsePermit,
    weight: usize,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<(T, ParsePermit), Problem> {
    if weight <= MAX_INLINE_WEIGHT_BYTES {
        return Ok((read(), permit));
    }
    tokio::task::spawn_blocking(move || (read(), permit))
        .await
        .map_err(|error| Problem::internal(format!("parsing a body failed: {error}")))
}

pub(super) async fn parse_document(
    budget: &ParseBudget,
    bytes: &Bytes,
) -> Result<(Result<Value, JsonError>, ParsePermit), Problem> {
    let weight = estimate_memory_bytes(bytes);
    if weight > MAX_DOCUMENT_WEIGHT_BYTES {
        return Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "The body has too many values",
        ));
    }
    let (permit, bytes) = (budget.permit(weight).await?, bytes.clone());
    run_off_thread(permit, weight, move || parse_json(&bytes)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix_web::test]
    async fn only_heavy_texts_wait_for_the_budget() {
        let budget = ParseBudget::new();
        let all = budget
            .permit(BUDGET_UNITS * BUDGET_UNIT_BYTES)
            .await
            .unwrap();
        assert!(budget.permit(MAX_INLINE_WEIGHT_BYTES).await.is_ok());
        let heavy = budget.permit(MAX_INLINE_WEIGHT_BYTES + 1);
        futures::pin_mut!(heavy);
        assert!(futures::poll!(&mut heavy).is_pending());
        drop(all);
        assert!(heavy.await.is_ok());
    }

    #[actix_web::test]
    async fn documents_with_too_many_values_are_refused_unparsed() {
        let budget = ParseBudget::new();
        let bomb = Bytes::from(format!("[{}0]", "0,".repeat(1024 * 1024)));
        let refused = parse_document(&budget, &bomb).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
        let text = Bytes::from(format!("\"{}\"", ",[".repeat(1024 * 1024)));
        let (read, _) = parse_document(&budget, &text).await.unwrap();
        assert!(read.unwrap().is_string());
    }
}
