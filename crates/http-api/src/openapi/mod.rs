//! The `OpenAPI` 3.1 document, and what follows from it: which paths exist, with which methods.
//!
//! `utoipa` collects the document from the registered handlers. This module adds what all routes share: security, and the
//! responses of extractors and middleware. Handlers document only their own responses.

mod complete;
mod enums;
mod glossary;
mod prebuilt;

use actix_web::dev::ResourceDef;

pub(crate) use complete::complete;
pub(crate) use prebuilt::{IS_PREBUILT, ServedDocument, document as prebuilt_document};

/// Paths with their methods in lower case.
pub(crate) type Operations = Vec<(String, Vec<String>)>;

/// The registered routes of a listener.
pub(crate) struct RouteSurface {
    /// `None` for listeners without pages.
    document: Option<ServedDocument>,
    routes: Vec<(ResourceDef, Vec<String>)>,
    /// Routes of pages, where a trailing slash is significant.
    pages: Vec<(ResourceDef, Vec<String>)>,
}

/// Routes of pages, which the document does not contain.
const PAGES: [(&str, &[&str]); 11] = [
    ("/docs", &["GET"]),
    ("/docs/{file:.*}", &["GET"]),
    ("/console", &["GET", "HEAD"]),
    ("/console/{file:.*}", &["GET", "HEAD"]),
    ("/settings", &["GET", "HEAD"]),
    ("/settings/skills", &["GET", "HEAD"]),
    ("/login", &["GET", "HEAD", "POST"]),
    ("/logout", &["POST"]),
    ("/password", &["GET", "HEAD", "POST"]),
    ("/password/forgot", &["GET", "HEAD", "POST"]),
    ("/invite", &["GET", "HEAD", "POST"]),
];

impl RouteSurface {
    /// Builds the surface of these routes. The document, if any, is a route itself.
    pub(crate) fn new(operations: Operations, document: Option<ServedDocument>) -> Self {
        let is_served = document.is_some();
        let mut routes: Vec<_> = operations
            .into_iter()
            .map(|(path, methods)| {
                let methods = methods.iter().map(|method| method.to_ascii_uppercase());
                (ResourceDef::new(path), methods.collect())
            })
            .collect();
        if is_served {
            routes.push((ResourceDef::new("/openapi.json"), vec!["GET".to_owned()]));
        }
        let pages = PAGES.iter().filter(|_| is_served).map(|(path, methods)| {
            let methods = methods.iter().map(|&method| method.to_owned());
            (ResourceDef::new(*path), methods.collect())
        });
        Self {
            document,
            pages: pages.collect(),
            routes,
        }
    }

    /// The document, where there is one.
    pub(crate) fn document(&self) -> Option<&ServedDocument> {
        self.document.as_ref()
    }

    /// Whether a route with this path exists.
    pub(crate) fn has_route(&self, path: &str) -> bool {
        self.routes.iter().any(|(route, _)| route.is_match(path))
    }

    /// The methods of this path, as the header `Allow` lists them; `None` for an unknown path.
    pub(crate) fn allowed_methods(&self, path: &str) -> Option<String> {
        let all = self.routes.iter().chain(&self.pages);
        let matching = all.filter(|(route, _)| route.is_match(path));
        let mut methods: Vec<&str> = matching
            .flat_map(|(_, methods)| methods)
            .map(String::as_str)
            .collect();
        methods.sort_unstable();
        methods.dedup();
        (!methods.is_empty()).then(|| methods.join(", "))
    }
}

/// Every path of the document.
#[cfg(test)]
pub(crate) fn operations(document: &serde_json::Value) -> Operations {
    let paths = document["paths"].as_object().into_iter().flatten();
    let methods = |item: &serde_json::Value| {
        let names = item.as_object().into_iter().flat_map(|item| item.keys());
        names
            .filter(|name| complete::METHODS.contains(&name.as_str()))
            .cloned()
            .collect()
    };
    paths
        .map(|(path, item)| (path.clone(), methods(item)))
        .collect()
}
