//! What routes are registered with.

use actix_web::dev::HttpServiceFactory;
use actix_web::web;
use utoipa_actix_web::OpenApiFactory;
use utoipa_actix_web::service_config::ServiceConfig as OpenApiConfig;

/// A handler with its part of the document.
pub(crate) trait DocumentedRoute:
    HttpServiceFactory + OpenApiFactory + utoipa::Path + 'static
{
}

impl<F: HttpServiceFactory + OpenApiFactory + utoipa::Path + 'static> DocumentedRoute for F {}

/// Accepts routes in the order in which they are tried; frequent ones come first.
pub(crate) trait RouteRegistry {
    fn service<F: DocumentedRoute>(&mut self, route: F) -> &mut Self;
}

impl RouteRegistry for web::ServiceConfig {
    fn service<F: DocumentedRoute>(&mut self, route: F) -> &mut Self {
        Self::service(self, route)
    }
}

impl RouteRegistry for OpenApiConfig<'_> {
    fn service<F: DocumentedRoute>(&mut self, route: F) -> &mut Self {
        Self::service(self, route)
    }
}
