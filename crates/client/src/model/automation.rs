//! Automations and their runs, as the automations service shows them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An automation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Automation {
    pub id: String,
    pub name: String,
    pub enabled: bool,
    /// What starts it: `type` is `cron` or `event`.
    pub trigger: Value,
    /// When it was last due, or run by hand.
    pub last_triggered_at: Option<String>,
    /// Why the automations service disabled it.
    pub disabled_reason: Option<String>,
    /// All other members.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Some automations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AutomationPage {
    pub automations: Vec<Automation>,
    /// The number of all automations.
    pub total: u64,
}

/// A run of an automation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AutomationRun {
    pub id: String,
    /// `PENDING`, `RUNNING`, `COMPLETED`, `FAILED`, `CANCELLED` or `SKIPPED`.
    pub status: String,
    /// What it does now.
    pub current_phase: Option<String>,
    /// Why it failed or was skipped.
    pub error_detail: Option<String>,
    pub conversation_id: Option<String>,
    pub created_at: String,
    pub completed_at: Option<String>,
    /// All other members.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Some runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AutomationRunPage {
    pub runs: Vec<AutomationRun>,
    /// The number of all runs.
    pub total: u64,
}
