//! Canaries: a distinct text in every place for a secret, and the search for them in all other places.
//!
//! Each contains a core of letters and digits, which JSON and URLs do not escape. The search also finds the core in base64 and
//! in hexadecimal digits, at any offset of a longer text.

mod canary_world;
mod leak_report;
mod planted_secrets;
mod secret_search;

pub use canary_world::{CanaryWorld, start_request};
pub use leak_report::{KeyHolder, LeakReport, TEMPLATE_SECRET, sqlite_dump};
pub use planted_secrets::{PlantedSecrets, master_key, plant_in_legacy, plant_in_v1, wrong_types};
pub use secret_search::{Secret, Secrets};

/// Every planted text contains it; no other text does.
pub const MARK: &str = "Qanary";
