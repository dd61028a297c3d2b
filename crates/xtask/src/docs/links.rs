//! Checks that each link of the documentation leads to a file and a heading that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::bail;

use crate::docs::read;
use crate::run::{output, print, program, root};

/// Checks relative links and anchors of all Markdown pages, names of pages in other files, and the book's contents.
pub(crate) fn check() -> anyhow::Result<()> {
    let files = output(program("git").args(["ls-files", "-co", "--exclude-standard"]))?;
    let files: Vec<&str> = files
        .lines()
        .filter(|it| root().join(it).is_file())
        .collect();
    let mut pages = BTreeMap::new();
    for path in &files {
        let is_page = path.starts_with("docs/") || !path.contains('/');
        if is_page && path.strip_suffix(".md").is_some() {
            pages.insert(PathBuf::from(path), read(path)?);
        }
    }
    let mut problems = Vec::new();
    for (page, text) in &pages {
        for target in links(text) {
            if let Err(problem) = resolve(page, &target, &pages) {
                problems.push(format!("{}: {target}: {problem}", page.display()));
            }
        }
        // The changelog names deleted files, and a tutorial names files that its reader creates.
        if page != Path::new("CHANGELOG.md") && !page.starts_with("docs/tutorials") {
            let missing = named_files(text).filter(|it| !root().join(it).exists());
            problems.extend(missing.map(|it| format!("{}: no file {it}", page.display())));
        }
    }
    problems.extend(unlisted(&pages));
    for path in files {
        // Large files are data, and people do not follow names of pages there.
        let text = fs::read_to_string(root().join(path)).unwrap_or_default();
        let missing = page_references(&text)
            .filter(|it| !root().join(it).is_file())
            .collect::<BTreeSet<_>>();
        problems.extend(missing.iter().map(|it| format!("{path}: no page {it}")));
    }
    if !problems.is_empty() {
        bail!("broken links:\n{}", problems.join("\n"));
    }
    print(&format!("links of {} pages are sound", pages.len()));
    Ok(())
}

/// Pages that the table of contents leaves out.
fn unlisted(pages: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let summary = Path::new("docs/SUMMARY.md");
    let contents: BTreeSet<PathBuf> = pages
        .get(summary)
        .map(|text| links(text))
        .unwrap_or_default()
        .iter()
        .map(|target| normalized(&Path::new("docs").join(target)))
        .collect();
    pages
        .keys()
        .filter(|page| page.starts_with("docs") && *page != summary && !contents.contains(*page))
        .map(|page| format!("{}: not in docs/SUMMARY.md", page.display()))
        .collect()
}

/// Whether a link leads somewhere.
fn resolve(page: &Path, target: &str, pages: &BTreeMap<PathBuf, String>) -> Result<(), String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let full = if path.is_empty() {
        page.to_owned()
    } else {
        normalized(&page.parent().unwrap_or(page).join(path))
    };
    if !root().join(&full).exists() {
        return Err("no such file".to_owned());
    }
    if page.starts_with("docs") && !full.starts_with("docs") {
        return Err(
            "outside of docs/: the book has no such page; name the file without a link".to_owned(),
        );
    }
    if anchor.is_empty() {
        return Ok(());
    }
    match pages.get(&full) {
        Some(text) if anchors(text).contains(anchor) => Ok(()),
        Some(_) => Err("no such heading".to_owned()),
        None => Err("an anchor in a file that is not a page".to_owned()),
    }
}

/// Resolves `.` and `..`.
fn normalized(path: &Path) -> PathBuf {
    let mut done = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                done.pop();
            }
            Component::CurDir => {}
            other => done.push(other),
        }
    }
    done
}

/// Lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// Targets of `[text](target)`, images included, without those in inline code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        // Odd parts are inline code. The text of a link may be code: the split leaves its `](target)` in a later part.
        let outside: String = line.split('`').step_by(2).collect();
        for after in outside.split("](").skip(1) {
            if let Some((target, _)) = after.split_once(')') {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// Files of the repository that inline code names: `crates/…` and the like, without patterns.
fn named_files(text: &str) -> impl Iterator<Item = &str> {
    let folders = ["bench/", "config/", "crates/", "docs/", "tests/"];
    let is_path = |it: char| it.is_ascii_alphanumeric() || "/_-.".contains(it);
    prose(text)
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(move |code| {
            folders.iter().any(|it| code.starts_with(it)) && code.chars().all(is_path)
        })
}

/// Anchors of headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim();
            let anchor: String = title
                .to_lowercase()
                .chars()
                .filter_map(|it| match it {
                    ' ' => Some('-'),
                    '-' | '_' => Some(it),
                    _ => it.is_alphanumeric().then_some(it),
                })
                .collect();
            let count = counts.entry(anchor.clone()).or_default();
            *count += 1;
            match *count {
                1 => anchor,
                more => format!("{anchor}-{}", more - 1),
            }
        })
        .collect()
}

/// Names of pages (`docs/….md`) in any text.
fn page_references(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("docs/").filter_map(|(at, _)| {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|it| it.is_alphanumeric() || "/_-.".contains(it)) {
            return None;
        }
        let rest = &text[at..];
        let is_part = |it: char| it.is_ascii_alphanumeric() || "/_-.".contains(it);
        let end = rest.find(|it| !is_part(it)).unwrap_or(rest.len());
        let path = rest[..end].trim_end_matches('.');
        path.strip_suffix(".md").map(|_| path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_do_not_count() {
        let text = "[a](b.md#c) and `[x](y)` and [`code`](d)\n```sh\n[no](e)\n```\n![f](g.png)";
        assert_eq!(links(text), ["b.md#c", "d", "g.png"]);
    }

    #[test]
    fn files_in_inline_code_are_found() {
        let text =
            "`crates/a/b.rs`, `cargo run crates/c`, `crates/*/d.rs`, crates/e, `config/f.toml`";
        let found: Vec<&str> = named_files(text).collect();
        assert_eq!(found, ["crates/a/b.rs", "config/f.toml"]);
    }

    #[test]
    fn anchors_are_those_of_the_renderers() {
        let text = "# Who listens there?\n## `http.bind`\n## A\n## A\n```\n# no\n```";
        let wanted = ["who-listens-there", "httpbind", "a", "a-1"];
        assert_eq!(anchors(text), wanted.map(str::to_owned).into());
    }

    #[test]
    fn a_broken_link_is_found() {
        let page = PathBuf::from("docs/SUMMARY.md");
        let pages = BTreeMap::from([(page.clone(), "# Contents".to_owned())]);
        assert_eq!(resolve(&page, "#contents", &pages), Ok(()));
        assert!(resolve(&page, "#other", &pages).is_err());
        assert!(resolve(&page, "no-such-page.md", &pages).is_err());
        assert!(resolve(&page, "../Cargo.toml", &pages).is_err());
    }

    #[test]
    fn names_of_pages_are_found_in_code() {
        // The name is in two pieces, because the check also reads this file.
        let text = "see D/a/b.md. (D/c.md) https://example.org/D/d.md D/{file} D/e.rs";
        let text = text.replace('D', "docs");
        let found: Vec<String> = page_references(&text)
            .map(|it| it.replace("docs", "D"))
            .collect();
        assert_eq!(found, ["D/a/b.md", "D/c.md"]);
    }
}
