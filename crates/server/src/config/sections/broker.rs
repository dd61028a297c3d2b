//! Section `broker`.

use broker::{PriceList, parse_price};
use domain::agent::spending::NanoUsd;
use settings::SettingReader;

/// Calls that the service makes for sandboxes. `compose/models.rs` interprets the hosts.
#[derive(Debug, Clone)]
pub(crate) struct BrokerSettings {
    pub(crate) models: bool,
    /// Whether sandboxes get placeholders of secrets that have hosts.
    pub(crate) secrets: bool,
    /// Private hosts that may be called: names, networks, or `*`.
    pub(crate) private_hosts: Vec<String>,
    /// Of each user in each organization.
    pub(crate) month_budget: Option<NanoUsd>,
    /// Prices of models before the known ones.
    pub(crate) prices: PriceList,
}

impl BrokerSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Self {
        Self {
            models: reader.switch("broker.models"),
            secrets: sandbox_provider::sends_secrets(reader),
            private_hosts: reader.list("broker.allow_private_hosts"),
            month_budget: reader
                .count_limit::<u64>("broker.monthly_budget", 1_000_000)
                .map(|dollars| NanoUsd::new(dollars.saturating_mul(1_000_000_000))),
            prices: PriceList::new(reader.parsed_list(
                "broker.prices",
                "entries MODEL=INPUT/OUTPUT or MODEL=INPUT/CACHED_INPUT/CACHE_WRITE/OUTPUT",
                parse_price,
            )),
        }
    }
}
