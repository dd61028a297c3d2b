//! Files of a crate do not import each other in a loop, directly or through others. A module and its own parts may.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::{Item, UseTree, Visibility};

use crate::{root, sources};

/// A path of names from the root of its crate.
type ModulePath = Vec<String>;

/// The files of one crate, with what they import.
#[derive(Default)]
struct CrateImports {
    imports: BTreeMap<ModulePath, Vec<ModulePath>>,
    /// Where a module shows names of other files: module and name, and what they stand for.
    shown: BTreeMap<(ModulePath, String), ModulePath>,
}

impl CrateImports {
    fn read(src: &str) -> Self {
        let mut all = Self::default();
        for (path, text) in sources(src) {
            if path.extension().is_none_or(|it| it != "rs") {
                continue;
            }
            let module = module_of(&path, &root().join(src));
            let file = syn::parse_file(&text).expect("a source file is Rust");
            let is_test = |name: &String| name == "tests" || name.ends_with("_tests");
            if !module.iter().any(is_test) {
                all.add(&module, &file.items);
            }
        }
        all
    }

    fn add(&mut self, module: &ModulePath, items: &[Item]) {
        let mut imports = Vec::new();
        for item in items {
            let Item::Use(item) = item else { continue };
            let is_shown = !matches!(item.vis, Visibility::Inherited);
            for (path, name) in flat(&item.tree, &[]) {
                let Some(path) = absolute(path, module) else {
                    continue;
                };
                if is_shown {
                    self.shown.insert((module.clone(), name), path.clone());
                }
                imports.push(path);
            }
        }
        self.imports.insert(module.clone(), imports);
    }

    /// The file that defines what a path names.
    fn file_of(&self, path: &[String]) -> Option<ModulePath> {
        let mut path = path.to_vec();
        // A name may be shown again by another module.
        for _ in 0..8 {
            let ends = (0..=path.len()).rev();
            let mut modules = ends.map(|end| path[..end].to_vec());
            let module = modules.find(|it| self.imports.contains_key(it))?;
            let name = path.get(module.len()).cloned().unwrap_or_default();
            match self.shown.get(&(module.clone(), name)) {
                Some(next) if *next != path => path.clone_from(next),
                _ => return Some(module),
            }
        }
        None
    }

    /// The files in loops, and those between them.
    fn loops(&self) -> BTreeSet<ModulePath> {
        let is_part = |one: &ModulePath, other: &ModulePath| one.starts_with(other);
        let mut arrows = BTreeSet::new();
        for (from, paths) in &self.imports {
            let to = paths.iter().filter_map(|path| self.file_of(path));
            let to = to.filter(|to| !is_part(from, to) && !is_part(to, from));
            arrows.extend(to.map(|to| (from.clone(), to)));
        }
        loop {
            let from: BTreeSet<_> = arrows.iter().map(|(from, _)| from.clone()).collect();
            let to: BTreeSet<_> = arrows.iter().map(|(_, to)| to.clone()).collect();
            let before = arrows.len();
            arrows.retain(|(one, other)| to.contains(one) && from.contains(other));
            if arrows.len() == before {
                return from;
            }
        }
    }
}

/// `a/b.rs` and `a/b/mod.rs` are the module `a::b`; the root has no name.
fn module_of(path: &Path, src: &Path) -> ModulePath {
    let below = path.strip_prefix(src).expect("a file of the crate");
    let names = below.with_extension("");
    let names = names.iter().map(|name| name.to_string_lossy().into_owned());
    names
        .filter(|name| !["mod", "lib", "main"].contains(&name.as_str()))
        .collect()
}

/// All paths of a `use`, each with the name that it introduces.
fn flat(tree: &UseTree, before: &[String]) -> Vec<(ModulePath, String)> {
    let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => flat(&path.tree, &with(&path.ident)),
        UseTree::Name(name) if name.ident == "self" => {
            vec![(before.to_vec(), before.last().cloned().unwrap_or_default())]
        }
        UseTree::Name(name) => vec![(with(&name.ident), name.ident.to_string())],
        UseTree::Rename(name) => vec![(with(&name.ident), name.rename.to_string())],
        UseTree::Glob(_) => vec![(before.to_vec(), String::new())],
        UseTree::Group(group) => {
            let parts = group.items.iter();
            parts.flat_map(|part| flat(part, before)).collect()
        }
    }
}

/// The path from the root of the crate. `None` for other crates.
fn absolute(path: ModulePath, module: &[String]) -> Option<ModulePath> {
    let mut base = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => module.to_vec(),
        _ => return None,
    };
    for name in path {
        match name.as_str() {
            "crate" | "self" => {}
            "super" => drop(base.pop()),
            _ => base.push(name),
        }
    }
    Some(base)
}

#[test]
fn files_do_not_import_each_other_in_loops() {
    let mut found = Vec::new();
    let crates = std::fs::read_dir(root().join("crates")).expect("the folder of crates");
    for entry in crates {
        let name = entry.expect("an entry").file_name();
        let src = format!("crates/{}/src", name.to_string_lossy());
        let loops = CrateImports::read(&src).loops();
        found.extend(loops.iter().map(|it| format!("{src}: {}", it.join("::"))));
    }
    assert_eq!(found, [""; 0], "move what both sides need below them");
}

#[test]
fn a_loop_is_found() {
    let mut house = CrateImports::default();
    for (module, text) in [
        ("face", "pub use self::part::Thing;"),
        ("face part", "use crate::other::Word;"),
        ("other", "use crate::face::{self, Thing};"),
        ("user", "use crate::other::Word;"),
        ("ground", ""),
    ] {
        let file = syn::parse_file(text).expect("Rust");
        let module = module.split(' ').map(str::to_owned).collect();
        house.add(&module, &file.items);
    }
    let found: Vec<_> = house.loops().iter().map(|it| it.join("::")).collect();
    assert_eq!(found, ["face::part", "other"]);
}
