//! The workspace's manifests.

use std::fs;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

use crate::root;

pub(crate) fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata runs in the workspace")
}

/// A dependency in the workspace's manifests.
#[derive(Debug, Clone)]
pub(crate) struct Edge {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) is_internal: bool,
    pub(crate) is_for_tests: bool,
}

pub(crate) fn edges(metadata: &Metadata) -> Vec<Edge> {
    let packages = metadata.packages.iter();
    packages
        .flat_map(|package| {
            package.dependencies.iter().map(|dependency| Edge {
                from: package.name.to_string(),
                to: dependency.name.clone(),
                is_internal: dependency.path.is_some(),
                is_for_tests: dependency.kind == DependencyKind::Development,
            })
        })
        .collect()
}

/// CI checks the one list, and `cargo xtask package` needs the other.
#[test]
fn packages_accept_the_licenses_that_ci_accepts() {
    let table = |file: &str| -> toml::Table {
        let text = fs::read_to_string(root().join(file)).expect("the file is readable");
        text.parse().expect("the file is TOML")
    };
    let (checked, packaged) = (table("deny.toml"), table("config/licenses.toml"));
    assert_eq!(checked["licenses"]["allow"], packaged["accepted"]);
}
