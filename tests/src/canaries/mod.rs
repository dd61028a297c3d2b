//! Canaries: a distinct text in every place that holds a secret, and the search for them everywhere else.
//!
//! Each has a part of letters and digits alone, so that JSON and URLs write it as it is; it is also looked for in base64
//! and in hexadecimal digits, wherever in a longer text it stands.

mod canary_world;
mod leak_report;
mod planted_secrets;
mod secret_search;

pub use canary_world::{CanaryWorld, start_request};
pub use leak_report::{AnswerCollector, FOR_SANDBOXES, LeakReport, sqlite_dump};
pub use planted_secrets::{PlantedSecrets, master_key, plant_in_legacy, plant_in_v1, wrong_types};
pub use secret_search::{Secret, Secrets};

/// Every planted text holds it; nothing else does.
pub const MARK: &str = "Qanary";
