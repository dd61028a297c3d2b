//! The operations in the service's own `OpenAPI` document, the only source of requests and of permitted responses.

use serde_json::Value;

/// The document.
#[derive(Debug, Clone)]
pub(super) struct ApiSurface {
    document: Value,
    operations: Vec<Operation>,
}

/// One method of one path.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) parameters: Vec<Parameter>,
    /// Schema of a JSON body.
    pub(super) body: Option<Value>,
    pub(super) statuses: Vec<u16>,
}

#[derive(Debug, Clone)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) in_path: bool,
    pub(super) is_required: bool,
    pub(super) schema: Value,
}

impl Operation {
    fn read(path: &str, method: &str, operation: &Value) -> Self {
        let list = operation["parameters"].as_array();
        let statuses = operation["responses"].as_object();
        Self {
            method: method.to_uppercase(),
            path: path.to_owned(),
            parameters: list.into_iter().flatten().map(Parameter::read).collect(),
            body: operation
                .pointer("/requestBody/content/application~1json/schema")
                .cloned(),
            statuses: statuses
                .into_iter()
                .flatten()
                .filter_map(|(status, _)| status.parse().ok())
                .collect(),
        }
    }

    /// Whether it requires a key.
    pub(super) fn is_keyed(&self) -> bool {
        self.statuses.contains(&401)
    }

    /// Whether it takes the key of a sandbox.
    pub(super) fn is_webhook(&self) -> bool {
        self.path.starts_with("/api/v1/webhooks/")
    }

    /// Number of literal segments that match; `None` if the path does not match.
    fn fits(&self, path: &str) -> Option<usize> {
        let (ours, theirs) = (self.path.split('/'), path.split('/'));
        if ours.clone().count() != theirs.clone().count() {
            return None;
        }
        ours.zip(theirs).try_fold(0, |literal, (ours, theirs)| {
            if ours.starts_with('{') {
                (!theirs.is_empty()).then_some(literal)
            } else {
                (ours == theirs).then_some(literal + 1)
            }
        })
    }
}

impl Parameter {
    fn read(parameter: &Value) -> Self {
        Self {
            name: parameter["name"].as_str().unwrap_or_default().to_owned(),
            in_path: parameter["in"] == "path",
            is_required: parameter["required"] == true,
            schema: parameter["schema"].clone(),
        }
    }
}

/// Whether requests with an administrator's key could delete users and keys that the run needs, or drain its host.
fn ends_the_run(path: &str) -> bool {
    let ends = [
        "/api/v1/keys/",
        "/api/v1/admin/users/",
        "/api/v1/admin/hosts/",
    ];
    ends.iter().any(|prefix| path.starts_with(prefix))
}

impl ApiSurface {
    /// Reads the document of `/openapi.json`, without the operations that end the run.
    ///
    /// # Panics
    /// When it describes nothing.
    pub(super) fn read(document: Value) -> Self {
        let mut surface = Self::read_all(document);
        surface.operations.retain(|it| !ends_the_run(&it.path));
        surface
    }

    /// Reads all operations of the document.
    ///
    /// # Panics
    /// When it describes nothing.
    pub(super) fn read_all(document: Value) -> Self {
        let mut operations = Vec::new();
        let paths = document["paths"].as_object().into_iter().flatten();
        for (path, methods) in paths {
            for (method, operation) in methods.as_object().into_iter().flatten() {
                operations.push(Operation::read(path, method, operation));
            }
        }
        assert!(
            !operations.is_empty(),
            "the document describes no operation"
        );
        Self {
            document,
            operations,
        }
    }

    pub(super) fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The operation of a request, if it has one.
    pub(super) fn find(&self, method: &str, path: &str) -> Option<&Operation> {
        let fitting = self.operations.iter().filter(|o| o.method == method);
        fitting
            .filter_map(|operation| Some((operation.fits(path)?, operation)))
            .max_by_key(|(literal, _)| *literal)
            .map(|(_, operation)| operation)
    }

    /// A schema behind a reference.
    pub(super) fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let reference = schema["$ref"].as_str();
        let pointer = reference.and_then(|reference| reference.strip_prefix('#'));
        let found = pointer.and_then(|pointer| self.document.pointer(pointer));
        found.unwrap_or(schema)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn literal_segments_win() {
        let responses = json!({"200": {}, "401": {}});
        let surface = ApiSurface::read(json!({"paths": {
            "/a/{id}": {"get": {"responses": responses}},
            "/a/count": {"get": {"responses": {"200": {}}}},
        }}));
        let found = |path| surface.find("GET", path).map(|found| found.path.as_str());
        assert_eq!(found("/a/count"), Some("/a/count"));
        assert_eq!(found("/a/7"), Some("/a/{id}"));
        assert_eq!(found("/a/"), None);
        assert_eq!(found("/a"), None);
        assert!(surface.operations()[0].is_keyed());
    }
}
