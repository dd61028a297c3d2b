//! Where routes are registered: with what serves them, what lists them, or what documents them.

use std::collections::BTreeMap;

use actix_web::App;
use actix_web::dev::HttpServiceFactory;
use actix_web::web;
use serde_json::Value;
use utoipa::openapi::HttpMethod;
use utoipa_actix_web::service_config::ServiceConfig as OpenApiConfig;
use utoipa_actix_web::{AppExt, OpenApiFactory};

use crate::openapi::{self, Operations, ServedDocument};

/// Takes routes, one after the other; those that are asked most come first.
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

/// Takes no more of a route than where it is.
#[derive(Default)]
pub(crate) struct RouteList(BTreeMap<String, Vec<String>>);

impl RouteRegistry for RouteList {
    fn service<F>(&mut self, _: F) -> &mut Self
    where
        F: HttpServiceFactory + OpenApiFactory + utoipa::Path + 'static,
    {
        let methods = F::methods().into_iter().map(|it| name_of(&it).to_owned());
        self.0.entry(F::path()).or_default().extend(methods);
        self
    }
}

/// As the document spells it.
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

/// Registers routes where they are documented.
pub(crate) type DocumentFn = fn(&mut OpenApiConfig<'_>);

/// A set of routes, registered everywhere by the same function: what is served is listed and documented, and nothing else exists.
///
/// Each worker makes its own routes, but what lists them is made once.
#[derive(Clone, Copy)]
pub(crate) struct RouteTable {
    pub(crate) serve: fn(&mut web::ServiceConfig),
    pub(crate) list: fn(&mut RouteList),
    /// `None`: what documents them is written, if anything does.
    pub(crate) document: Option<DocumentFn>,
}

impl RouteTable {
    /// Everything.
    pub(crate) const PUBLIC: Self = Self {
        serve: crate::routes::register,
        list: crate::routes::register,
        // A condition, so that a release build has nothing of the other one.
        document: if openapi::IS_PREBUILT {
            None
        } else {
            Some(|routes| crate::routes::register(routes))
        },
    };

    /// What sandboxes may call, for a listener of their own.
    pub(crate) const CALLBACK: Self = Self {
        serve: crate::routes::register_callback,
        list: crate::routes::register_callback,
        document: None,
    };

    /// What whoever watches over the service may read, for a listener of their own.
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

    /// What documents them, as it is sent by a service whose public URL has this path.
    pub(crate) fn served(self, prefix: &str) -> ServedDocument {
        match self.document {
            None => ServedDocument::prebuilt(prefix),
            Some(register) => ServedDocument::collected(&openapi::at(collect(register), prefix)),
        }
    }

    /// What documents them.
    pub(crate) fn document(self) -> Value {
        match self.document {
            None => openapi::prebuilt_document().unwrap_or_default(),
            Some(register) => collect(register),
        }
    }
}

/// Takes megabytes for a moment, which the allocator keeps.
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
    fn what_is_listed_is_what_is_documented() {
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
