//! The user's automations, and their runs.

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::model::{AutomationPage, AutomationRun, AutomationRunPage};
use crate::operations;

/// The automations of the organization in which the user acts. The service forwards these requests to its automations service,
/// which may still be starting (503) or not exist (404).
#[derive(Debug, Clone)]
pub struct Automations(pub(crate) Client);

impl Automations {
    /// At most 100 automations, without the first `skip`.
    pub async fn list(&self, limit: u16, skip: usize) -> Result<AutomationPage, Error> {
        let call = Call::to(&operations::AUTOMATIONS);
        let call = call.query("limit", limit.to_string());
        self.0.ask(&call.query("offset", skip.to_string())).await
    }

    /// At most 100 runs of an automation, the latest first.
    pub async fn runs(&self, automation: &str, limit: u16) -> Result<AutomationRunPage, Error> {
        let call = Call::to(&operations::AUTOMATION_RUNS).at(automation);
        self.0.ask(&call.query("limit", limit.to_string())).await
    }

    /// Runs an automation now. The run is queued; a repeated call runs it twice.
    pub async fn run(&self, automation: &str) -> Result<AutomationRun, Error> {
        let call = Call::to(&operations::DISPATCH_AUTOMATION).at(automation);
        self.0.ask(&call).await
    }
}
