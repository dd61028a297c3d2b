//! Registers routes in three places: the server, the list of routes, and the document.

use std::collections::BTreeMap;

use actix_web::App;
use serde_json::{Value, json};
use utoipa_actix_web::AppExt;
use utoipa_actix_web::service_config::ServiceConfig as OpenApiConfig;

use crate::Listener;
use crate::openapi::{self, Operations};
use crate::route_registry::{DocumentedRoute, RouteRegistry};

/// Collects the path and methods of routes.
#[derive(Default)]
pub(crate) struct RouteList(BTreeMap<String, Vec<String>>);

impl RouteRegistry for RouteList {
    fn service<F: DocumentedRoute>(&mut self, _: F) -> &mut Self {
        // The method in the spelling of the document.
        let methods = F::methods().into_iter().map(|method| json!(method));
        let methods = methods.filter_map(|method| method.as_str().map(str::to_owned));
        self.0.entry(F::path()).or_default().extend(methods);
        self
    }
}

/// The routes of a listener. One function registers them everywhere, so that every served route is listed and documented.
///
/// Each worker builds its own routes; the list is built once.
pub(crate) trait RouteSet: Copy + 'static {
    fn register(self, routes: &mut impl RouteRegistry);

    /// The paths with their methods.
    fn operations(self) -> Operations {
        let mut listing = RouteList::default();
        self.register(&mut listing);
        listing.0.into_iter().collect()
    }

    /// Collects the document. Takes some megabytes for a moment, which the allocator keeps.
    fn collect(self) -> Value {
        let (_, collected) = App::new()
            .into_utoipa_app()
            .configure(|routes: &mut OpenApiConfig<'_>| self.register(routes))
            .split_for_parts();
        openapi::complete(&collected)
    }
}

impl RouteSet for Listener {
    fn register(self, routes: &mut impl RouteRegistry) {
        match self {
            Self::Public => crate::routes::register(routes),
            Self::Callback => crate::routes::register_callback(routes),
            Self::Metrics => crate::routes::register_metrics(routes),
            Self::Automations => crate::routes::register_for_automations(routes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_routes_equal_documented_routes() {
        let sorted = |mut operations: Operations| {
            operations.sort();
            for (_, methods) in &mut operations {
                methods.sort();
            }
            operations
        };
        let listed = sorted(Listener::Public.operations());
        let document = Listener::Public.collect();
        assert_eq!(listed, sorted(openapi::operations(&document)));
        for part in [Listener::Callback, Listener::Metrics, Listener::Automations] {
            let part = part.operations();
            assert!(!part.is_empty() && part.len() < listed.len());
        }
    }
}
