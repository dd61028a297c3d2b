//! Names that a stranger understands: one type name for one thing, and limits and time spans that end in their unit or kind.

use std::collections::BTreeMap;
use std::path::Path;

use syn::{Attribute, Item};

use super::{root, sources};

/// Names that say what a thing is without its module, or that the same trait forces on several crates.
const SHARED_NAMES: &[&str] = &["Builder", "Config", "Error"];
/// Types of SQL and of the wire are named after the type of the domain that they stand for.
const SHARED_SUFFIXES: &[&str] = &["Dto", "Row"];
/// Its types are the wire's, seen from outside, and are named as the service names them.
const WIRE_CLIENT: &str = "client";
/// Words at the beginning of a constant that stand for `MAX_` or `MIN_`, or for nothing.
const FORBIDDEN_PREFIXES: &[&str] = &["LARGEST_", "LEAST_", "LONGEST_", "MOST_", "SHORTEST_"];
/// Words at the end of a constant that stand for `_INTERVAL`, `_TTL` or `_TIMEOUT`.
const FORBIDDEN_SUFFIXES: &[&str] = &["_EVERY", "_FOR", "_PATIENCE", "_WITHIN"];
/// Words of prose that hide who does what.
const FORBIDDEN_WORDS: &[&str] = &[
    "nobody",
    "nobody's",
    "somebody",
    "somebody's",
    "whoever",
    "told",
];

/// One type or constant of a source file.
struct NamedItem {
    name: String,
    is_type: bool,
}

/// The types and constants of a file, without those of its tests.
fn named_items(items: &[Item], found: &mut Vec<NamedItem>) {
    for item in items {
        let (name, is_type, attributes) = match item {
            Item::Struct(it) => (&it.ident, true, &it.attrs),
            Item::Enum(it) => (&it.ident, true, &it.attrs),
            Item::Trait(it) => (&it.ident, true, &it.attrs),
            Item::Type(it) => (&it.ident, true, &it.attrs),
            Item::Union(it) => (&it.ident, true, &it.attrs),
            Item::Const(it) => (&it.ident, false, &it.attrs),
            Item::Static(it) => (&it.ident, false, &it.attrs),
            Item::Mod(module) => {
                if let Some((_, items)) = &module.content
                    && !is_for_tests(&module.attrs)
                {
                    named_items(items, found);
                }
                continue;
            }
            _ => continue,
        };
        if !is_for_tests(attributes) {
            let name = name.to_string();
            found.push(NamedItem { name, is_type });
        }
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|condition| condition == "test")
    })
}

/// Source files that are shipped, with the crate they belong to.
fn shipped_files() -> Vec<(String, String, Vec<NamedItem>)> {
    let crates = root().join("crates");
    let mut files = Vec::new();
    for (path, text) in sources("crates") {
        let relative = path.strip_prefix(&crates).expect("a path below crates");
        let mut parts = relative
            .components()
            .map(|it| it.as_os_str().to_string_lossy());
        let (package, folder) = (parts.next(), parts.next());
        let is_source = path.extension().is_some_and(|it| it == "rs");
        if folder.as_deref() != Some("src") || !is_source || is_test_file(relative) {
            continue;
        }
        let file = syn::parse_file(&text)
            .unwrap_or_else(|error| panic!("{} is not valid Rust: {error}", relative.display()));
        let mut items = Vec::new();
        named_items(&file.items, &mut items);
        let package = package.expect("a crate's folder").into_owned();
        files.push((package, relative.display().to_string(), items));
    }
    files
}

fn is_test_file(path: &Path) -> bool {
    path.components()
        .any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs")))
}

#[test]
fn a_type_name_stands_for_one_thing() {
    let mut places: BTreeMap<(bool, String), Vec<String>> = BTreeMap::new();
    for (package, file, items) in shipped_files() {
        for item in items.into_iter().filter(|item| item.is_type) {
            let key = (package == WIRE_CLIENT, item.name);
            places.entry(key).or_default().push(file.clone());
        }
    }
    let is_shared = |name: &str| {
        SHARED_NAMES.contains(&name) || SHARED_SUFFIXES.iter().any(|it| name.ends_with(it))
    };
    let several = places
        .iter()
        .filter(|((_, name), files)| files.len() > 1 && !is_shared(name));
    let list: Vec<String> = several
        .map(|((_, name), files)| format!("{name}: {files:?}"))
        .collect();
    assert!(
        list.is_empty(),
        "{} names stand for several types: {list:#?}",
        list.len()
    );
}

#[test]
fn limits_and_time_spans_have_the_usual_names() {
    let mut wrong = Vec::new();
    for (_, file, items) in shipped_files() {
        for item in items.into_iter().filter(|item| !item.is_type) {
            let name = &item.name;
            let is_wrong = FORBIDDEN_PREFIXES.iter().any(|it| name.starts_with(it))
                || FORBIDDEN_SUFFIXES.iter().any(|it| name.ends_with(it))
                || name.contains("PATIENCE");
            if is_wrong {
                wrong.push(format!("{name} in {file}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "name limits MAX_ or MIN_, spans _TIMEOUT, _INTERVAL, _TTL, _GRACE or _BACKOFF: {wrong:#?}"
    );
}

#[test]
fn prose_names_its_subject() {
    let mut wrong = Vec::new();
    for folder in ["crates", "docs"] {
        for (path, text) in sources(folder) {
            let is_prose = path.extension().is_some_and(|it| it == "rs" || it == "md");
            if !is_prose || is_test_file(&path) || path.ends_with("architecture/names.rs") {
                continue;
            }
            for (index, line) in text.lines().enumerate() {
                // The account and the label of that name, and git's own words.
                let line = line
                    .replace("=nobody", "")
                    .replace("told us to quit", "")
                    .replace("\"nobody\"", "")
                    .replace("`nobody`", "");
                let words = line.split(|it: char| !it.is_alphanumeric() && it != '\'' && it != '_');
                let found = words
                    .map(str::to_lowercase)
                    .find(|word| FORBIDDEN_WORDS.contains(&word.as_str()));
                if let Some(word) = found {
                    wrong.push(format!("{}:{}: {word}", path.display(), index + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} lines: {wrong:#?}", wrong.len());
}
