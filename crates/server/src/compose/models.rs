//! The model calls that the service makes for sandboxes.

use std::sync::Arc;

use broker::{BrokerConfig, ModelBroker, PrivateHosts};
use sandbox_provider::BackendFeatures;

use super::git::private_hosts;
use crate::config::Config;

const PRIVATE_HOSTS_KEY: &str =
    "broker.allow_private_hosts (WORKSPACE_BROKER__ALLOW_PRIVATE_HOSTS)";

/// `None` if sandboxes call models themselves.
pub(super) fn open(
    config: &Config,
    sandboxes: &BackendFeatures,
) -> anyhow::Result<Option<Arc<ModelBroker>>> {
    if !config.broker.models {
        return Ok(None);
    }
    let listed = &config.broker.private_hosts;
    let private_hosts = match private_hosts(PRIVATE_HOSTS_KEY, listed)? {
        // Such a sandbox reaches what the service reaches, so the service opens no further way.
        PrivateHosts::Refused if listed.is_empty() && !sandboxes.is_isolated => {
            PrivateHosts::Allowed
        }
        chosen => chosen,
    };
    let broker = ModelBroker::new(BrokerConfig {
        private_hosts,
        prices: config.broker.prices.clone(),
        ..BrokerConfig::default()
    });
    let broker = broker.map_err(|error| anyhow::anyhow!(error))?;
    Ok(Some(Arc::new(broker)))
}
