//! The documented surface: the `OpenAPI` 3.1 document, and what follows from it (which paths exist, with which methods).
//!
//! The document is what `utoipa` collects from the registered handlers, completed with what every route shares:
//! security, and the answers that extractors and middleware may give. Handlers document only their own answers.

mod complete;
mod enums;
mod glossary;
mod prebuilt;

use actix_web::dev::ResourceDef;
use actix_web::web::Bytes;
use serde_json::Value;

pub(crate) use complete::complete;
use prebuilt::PrebuiltDocument;
pub(crate) use prebuilt::{IS_PREBUILT, document as prebuilt_document};

/// Paths with their methods in lower case.
pub(crate) type Operations = Vec<(String, Vec<String>)>;

/// The document as it is sent.
pub(crate) struct ServedDocument(DocumentForm);

enum DocumentForm {
    /// In the binary; what is made of it is made once, when somebody wants it.
    Prebuilt(PrebuiltDocument),
    /// Here, serialised.
    Collected(Bytes),
}

impl ServedDocument {
    /// From the completed document.
    pub(crate) fn collected(document: &Value) -> Self {
        Self(DocumentForm::Collected(Bytes::from(document.to_string())))
    }

    /// As it is written, for a service whose public URL has this path.
    pub(crate) fn prebuilt(prefix: &str) -> Self {
        Self(DocumentForm::Prebuilt(PrebuiltDocument::at(prefix)))
    }

    /// Its text, and whether that is packed by gzip. All who ask share it.
    pub(crate) fn text(&self, takes_gzip: bool) -> (Bytes, bool) {
        match &self.0 {
            DocumentForm::Collected(text) => (text.clone(), false),
            DocumentForm::Prebuilt(document) if takes_gzip => (document.packed(), true),
            DocumentForm::Prebuilt(document) => (document.plain(), false),
        }
    }
}

/// What this service offers, as it was registered.
pub(crate) struct RouteSurface {
    /// `None` behind doors that have no pages.
    document: Option<ServedDocument>,
    routes: Vec<(ResourceDef, Vec<String>)>,
    /// What serves pages: a slash more or less means something there.
    pages: Vec<(ResourceDef, Vec<String>)>,
}

/// Routes of pages, which are not in the document.
const PAGES: [(&str, &[&str]); 4] = [
    ("/docs", &["GET"]),
    ("/docs/{file:.*}", &["GET"]),
    ("/console", &["GET", "HEAD"]),
    ("/console/{file:.*}", &["GET", "HEAD"]),
];

impl RouteSurface {
    /// These routes, and what documents them, which is a route itself.
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
    pub(crate) fn knows(&self, path: &str) -> bool {
        self.routes.iter().any(|(route, _)| route.is_match(path))
    }

    /// The methods that this path takes, as the header `Allow` lists them; `None` for an unknown path.
    pub(crate) fn allowed(&self, path: &str) -> Option<String> {
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

/// The document of a service whose public URL has this path.
pub(crate) fn at(mut document: Value, prefix: &str) -> Value {
    if !prefix.is_empty() {
        document["servers"] = serde_json::json!([{"url": prefix}]);
    }
    document
}

/// Every path of the document.
#[cfg(test)]
pub(crate) fn operations(document: &Value) -> Operations {
    let paths = document["paths"].as_object().into_iter().flatten();
    let methods = |item: &Value| {
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
