//! Where routes are registered: with what serves them, or with what documents them.

use actix_web::App;
use actix_web::dev::HttpServiceFactory;
use actix_web::web;
use serde_json::Value;
use utoipa_actix_web::service_config::ServiceConfig as Documenting;
use utoipa_actix_web::{AppExt, OpenApiFactory};

use crate::openapi::{self, Operations, Surface};

/// Takes routes, one after the other; those that are asked most come first.
pub(crate) trait Registry {
    /// Adds a route.
    fn service<F>(&mut self, route: F) -> &mut Self
    where
        F: HttpServiceFactory + OpenApiFactory + 'static;
}

impl Registry for web::ServiceConfig {
    fn service<F>(&mut self, route: F) -> &mut Self
    where
        F: HttpServiceFactory + OpenApiFactory + 'static,
    {
        Self::service(self, route)
    }
}

impl Registry for Documenting<'_> {
    fn service<F>(&mut self, route: F) -> &mut Self
    where
        F: HttpServiceFactory + OpenApiFactory + 'static,
    {
        Self::service(self, route)
    }
}

/// Registers routes where they are documented.
pub(crate) type Documenter = fn(&mut Documenting<'_>);

/// A set of routes, registered in both places by the same function: what is served is documented, and nothing else exists.
///
/// Each worker makes its own routes, but what documents them is made once: collecting it takes megabytes for a moment, which
/// the allocator would keep for every thread that has ever done it.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    pub(crate) serve: fn(&mut web::ServiceConfig),
    /// `None` if these routes are what is written.
    pub(crate) document: Option<Documenter>,
}

impl Table {
    /// Everything.
    pub(crate) const EVERYBODY: Self = Self {
        serve: super::register,
        // A condition, so that a release build has nothing of the other one.
        document: if openapi::IS_WRITTEN {
            None
        } else {
            Some(|routes| super::register(routes))
        },
    };

    /// What sandboxes may call, for a listener of their own.
    pub(crate) const SANDBOXES: Self = Self {
        serve: super::register_for_sandboxes,
        document: Some(|routes| super::register_for_sandboxes(routes)),
    };

    /// What whoever watches over the service may read, for a listener of their own.
    pub(crate) const OPERATORS: Self = Self {
        serve: super::register_for_operators,
        document: Some(|routes| super::register_for_operators(routes)),
    };

    /// What exists, for a service whose public URL has this path.
    pub(crate) fn surface(self, prefix: &str, has_docs: bool) -> Surface {
        match self.document {
            None => Surface::written(prefix),
            Some(register) => Surface::collected(&openapi::at(collect(register), prefix), has_docs),
        }
    }

    /// The paths with their methods.
    pub(crate) fn operations(self) -> Operations {
        match self.document {
            None => openapi::written_operations(),
            Some(register) => openapi::operations(&collect(register)),
        }
    }

    /// The `OpenAPI` document.
    pub(crate) fn document(self) -> Value {
        match self.document {
            None => openapi::written_document().unwrap_or_default(),
            Some(register) => collect(register),
        }
    }
}

fn collect(register: Documenter) -> Value {
    let (_, collected) = App::new()
        .into_utoipa_app()
        .configure(register)
        .split_for_parts();
    openapi::complete(&collected)
}
