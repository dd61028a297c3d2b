//! Licenses, sources and owners of dependencies, as `deny.toml` lists them, from the lock file. `cargo xtask deny` checks more
//! and takes minutes to install.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use cargo_metadata::{CargoOpt, Metadata, MetadataCommand, PackageId};

use super::root;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .features(CargoOpt::AllFeatures)
        .other_options(["--locked".to_owned()])
        .exec()
        .expect("cargo metadata runs in the workspace")
}

fn deny_toml() -> toml::Table {
    let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml is readable");
    text.parse().expect("deny.toml is TOML")
}

fn texts(value: &toml::Value) -> BTreeSet<&str> {
    let list = value.as_array().expect("a list");
    list.iter().filter_map(toml::Value::as_str).collect()
}

/// Whether the allowed licenses satisfy an expression: `OR` of `AND`s, as far as parentheses are whole alternatives or parts.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let expression = expression.replace('/', " OR ");
    // `(A OR B) AND C`: each part of an outermost `AND` has to be satisfied.
    if let Some((left, right)) = split_outside(&expression, " OR ") {
        return is_allowed(&left, allowed) || is_allowed(&right, allowed);
    }
    if let Some((left, right)) = split_outside(&expression, " AND ") {
        return is_allowed(&left, allowed) && is_allowed(&right, allowed);
    }
    let one = expression.trim();
    match one.strip_prefix('(').and_then(|it| it.strip_suffix(')')) {
        Some(inner) => is_allowed(inner, allowed),
        None => allowed.contains(one),
    }
}

/// Splits at the first operator that is outside of parentheses.
fn split_outside(text: &str, operator: &str) -> Option<(String, String)> {
    let is_outside = |at: usize| {
        let before = &text[..at];
        before.matches('(').count() == before.matches(')').count()
    };
    let mut places = text.match_indices(operator).map(|(at, _)| at);
    let at = places.find(|at| is_outside(*at))?;
    Some((
        text[..at].to_owned(),
        text[at + operator.len()..].to_owned(),
    ))
}

#[test]
fn licenses_and_sources_of_dependencies_are_allowed() {
    let (metadata, deny) = (metadata(), deny_toml());
    let allowed = texts(&deny["licenses"]["allow"]);
    let mut wrong = Vec::new();
    for package in metadata.packages.iter().filter(|it| it.source.is_some()) {
        let source = package.source.as_ref().map(ToString::to_string);
        if source.as_deref() != Some(CRATES_IO) {
            wrong.push(format!("{}: from {source:?}", package.name));
        }
        let license = package.license.as_deref().unwrap_or_default();
        if !is_allowed(license, &allowed) {
            wrong.push(format!("{}: licensed as {license:?}", package.name));
        }
    }
    assert_eq!(wrong, [""; 0], "deny.toml does not allow these");
}

#[test]
fn drivers_are_used_by_their_owners_only() {
    let (metadata, deny) = (metadata(), deny_toml());
    let names: BTreeMap<&PackageId, &str> = metadata
        .packages
        .iter()
        .map(|package| (&package.id, package.name.as_str()))
        .collect();
    let nodes = &metadata.resolve.as_ref().expect("a graph").nodes;
    let bans = deny["bans"]["deny"].as_array().expect("a list");
    let mut wrong = Vec::new();
    for ban in bans {
        let name = ban["name"].as_str().expect("a name");
        let wrappers = ban.get("wrappers").map(texts).unwrap_or_default();
        let users = nodes.iter().filter(|node| {
            let mut uses = node.deps.iter().map(|it| names[&it.pkg]);
            uses.any(|used| used == name)
        });
        let users = users.map(|node| names[&node.id]);
        let foreign = users.filter(|user| !wrappers.contains(user));
        wrong.extend(foreign.map(|user| format!("{user} -> {name}")));
    }
    assert_eq!(wrong, [""; 0], "deny.toml does not allow these");
}

#[test]
fn expressions_of_licenses_are_understood() {
    let allowed = BTreeSet::from(["MIT", "Apache-2.0", "Unicode-3.0"]);
    for expression in [
        "MIT",
        "MIT OR GPL-3.0",
        "GPL-3.0/MIT",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "(MIT OR GPL-3.0) AND (Apache-2.0)",
    ] {
        assert!(is_allowed(expression, &allowed), "{expression}");
    }
    for expression in ["", "GPL-3.0", "MIT AND GPL-3.0", "(GPL-3.0 OR X) AND MIT"] {
        assert!(!is_allowed(expression, &allowed), "{expression}");
    }
}
