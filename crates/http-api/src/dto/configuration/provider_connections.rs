//! Connections to model providers on the wire. Requests contain their keys, responses never do.

use application::settings::{Profiles, ProviderConnection, ProviderConnectionChange};
use domain::id::ProviderConnectionId;
use secrecy::SecretString;

use crate::decode::model;
use crate::extract::NamedParam;

impl NamedParam for ProviderConnectionId {
    const NAME: &'static str = "connection_id";
}

/// A connection to a model provider, which profiles share.
#[model(response = ProviderConnectionResponse, from(connection: &ProviderConnection))]
pub(crate) struct ProviderConnectionDto {
    #[from(connection.id)]
    id: ProviderConnectionId,
    #[from(connection.display_name.clone())]
    display_name: String,
    #[from(connection.provider.clone())]
    provider: String,
    /// The endpoint; null for that of the profile, or the vendor's own.
    #[from(connection.base_url.clone())]
    base_url: Option<String>,
    #[from(connection.api_key.is_some())]
    api_key_set: bool,
    /// In seconds since 1970.
    #[from(connection.created_at.micros() / 1_000_000)]
    created_at: i64,
    /// In seconds since 1970.
    #[from(connection.updated_at.micros() / 1_000_000)]
    updated_at: i64,
}

/// All connections.
#[model(response = ProviderConnections, from(profiles: &Profiles))]
pub(crate) struct ProviderConnectionsDto {
    /// In the order of creation.
    #[from(profiles.connections().iter().map(ProviderConnectionDto::from).collect())]
    connections: Vec<ProviderConnectionDto>,
}

/// A new connection.
#[model(body = ProviderConnectionCreateRequest, into = ProviderConnectionChange)]
pub(crate) struct NewProviderConnectionDto {
    #[validate(length(min = 1, max = 128))]
    #[into(Some(display_name))]
    display_name: String,
    /// The provider's name, for people.
    #[decode(default = "custom".to_owned())]
    #[validate(length(min = 1, max = 128))]
    #[into(Some(provider))]
    provider: String,
    /// The key. It is never shown.
    #[into(Some(api_key))]
    api_key: SecretString,
    /// An http or https URL. Absent or blank: the endpoint of the profile, or the vendor's own.
    #[validate(length(max = 2048))]
    base_url: Option<String>,
}

/// A change of a connection. What is absent or null stays.
#[model(body = ProviderConnectionUpdateRequest, into = ProviderConnectionChange)]
pub(crate) struct ProviderConnectionChangeDto {
    #[validate(length(min = 1, max = 128))]
    display_name: Option<String>,
    #[validate(length(min = 1, max = 128))]
    provider: Option<String>,
    /// Blank clears the key.
    api_key: Option<SecretString>,
    /// Blank removes the endpoint.
    #[validate(length(max = 2048))]
    base_url: Option<String>,
}
