//! Registers routes in three places: the server, the list of routes, and the document.

use std::collections::BTreeMap;

use actix_web::App;
use actix_web::dev::HttpServiceFactory;
use actix_web::web;
use serde_json::Value;
use utoipa::openapi::HttpMethod;
use utoipa_actix_web::service_config::ServiceConfig as OpenApiConfig;
use utoipa_actix_web::{AppExt, OpenApiFactory};

use crate::openapi::{self, Operations, ServedDocument};

/// Accepts routes in the order in which they are tried; frequent ones come first.
pub(crate) trait RouteRegistry {
    /// Adds a route.
    fn service<F>(&mut self, route: F) -> &mut Self
    where
        F: HttpServiceFactory + OpenApiFactory + utoipa::Path + 'static;
}

impl RouteRegistry for web::ServiceConfig {
    fn service<F>(&mut self, route: F) -> &mut Self
    where
        F: HttpServiceFactory + OpenApiFactory + utoipa::Path + 'static,
    {
        Self::service(self, route)
    }
}

impl RouteRegistry for OpenApiConfig<'_> {
    fn service<F>(&mut self, route: F) -> &mut Self
    where
        F: HttpServiceFactory + OpenApiFactory + utoipa::Path + 'static,
    {
        Self::service(self, route)
    }
}

/// Collects the path and methods of routes.
#[derive(Default)]
pub(crate) struct RouteList(BTreeMap<String, Vec<String>>);

impl RouteRegistry for RouteList {
    fn service<F>(&mut self, _: F) -> &mut Self
    where
        F: HttpServiceFactory + OpenApiFactory + utoipa::Path + 'static,
    {
        let methods = F::methods()
            .into_iter()
            .map(|method| name_of(&method).to_owned());
        self.0.entry(F::path()).or_default().extend(methods);
        self
    }
}

/// The method in the spelling of the document.
fn name_of(method: &HttpMethod) -> &'static str {
    match method {
        HttpMethod::Get => "get",
        HttpMethod::Post => "post",
        HttpMethod::Put => "put",
        HttpMethod::Delete => "delete",
        HttpMethod::Options => "options",
        HttpMethod::Head => "head",
        HttpMethod::Patch => "patch",
        HttpMethod::Trace => "trace",
    }
}

/// Registers routes in the document.
pub(crate) type DocumentFn = fn(&mut OpenApiConfig<'_>);

/// The routes of a listener. One function registers them everywhere, so that every served route is listed and documented.
///
/// Each worker builds its own routes; the list is built once.
#[derive(Clone, Copy)]
pub(crate) struct RouteTable {
    pub(crate) serve: fn(&mut web::ServiceConfig),
    pub(crate) list: fn(&mut RouteList),
    /// `None` if the document is prebuilt, or if these routes have none.
    pub(crate) document: Option<DocumentFn>,
}

impl RouteTable {
    /// All routes.
    pub(crate) const PUBLIC: Self = Self {
        serve: crate::routes::register,
        list: crate::routes::register,
        // A constant condition, so that a release build contains no code for collecting.
        document: if openapi::IS_PREBUILT {
            None
        } else {
            Some(|routes| crate::routes::register(routes))
        },
    };

    /// The routes of the callback listener.
    pub(crate) const CALLBACK: Self = Self {
        serve: crate::routes::register_callback,
        list: crate::routes::register_callback,
        document: None,
    };

    /// The routes of the metrics listener.
    pub(crate) const METRICS: Self = Self {
        serve: crate::routes::register_metrics,
        list: crate::routes::register_metrics,
        document: None,
    };

    /// The paths with their methods.
    pub(crate) fn operations(self) -> Operations {
        let mut listing = RouteList::default();
        (self.list)(&mut listing);
        listing.0.into_iter().collect()
    }

    /// The document as a service sends it whose public URL has this path.
    pub(crate) fn served(self, prefix: &str) -> ServedDocument {
        match self.document {
            None => ServedDocument::prebuilt(prefix),
            Some(register) => {
                ServedDocument::collected(&openapi::with_prefix(collect(register), prefix))
            }
        }
    }

    /// The document.
    pub(crate) fn document(self) -> Value {
        match self.document {
            None => openapi::prebuilt_document().unwrap_or_default(),
            Some(register) => collect(register),
        }
    }
}

/// Collects the document. Takes some megabytes for a moment, which the allocator keeps.
fn collect(register: DocumentFn) -> Value {
    let (_, collected) = App::new()
        .into_utoipa_app()
        .configure(register)
        .split_for_parts();
    openapi::complete(&collected)
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
        let listed = sorted(RouteTable::PUBLIC.operations());
        let document = collect(|routes| crate::routes::register(routes));
        assert_eq!(listed, sorted(openapi::operations(&document)));
        for part in [RouteTable::CALLBACK, RouteTable::METRICS] {
            let part = part.operations();
            assert!(!part.is_empty() && part.len() < listed.len());
        }
    }
}
