//! Identity providers.

use std::sync::Arc;

use anyhow::Context as _;
use domain::id::ProviderName;
use oidc::{OidcProviders, ProviderConfig};

use crate::config::OidcSettings;

pub(super) fn open(settings: &[OidcSettings]) -> anyhow::Result<OidcProviders> {
    let configs = settings.iter().map(|provider| {
        Ok(ProviderConfig {
            name: ProviderName::parse(&provider.name)?,
            label: provider.label.clone(),
            issuer: provider.issuer.parse()?,
            client_id: provider.client_id.clone(),
            client_secret: provider.client_secret.clone(),
            scopes: provider.scopes.clone(),
            groups_claim: provider.groups_claim.clone(),
        })
    });
    let configs: anyhow::Result<Vec<_>> = configs.collect();
    let clock = super::clock();
    OidcProviders::new(configs?, &Arc::clone(&clock))
        .context("TLS for identity providers is not available")
}
