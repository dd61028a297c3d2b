//! The tables in `docs/explanation/compatibility.md` that are generated from rules, between markers.

use std::path::{Path, PathBuf};

/// A file of the repository.
pub(crate) fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a switch for the person who runs this test"
)]
pub(crate) fn switch(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Checks that the document has `text` between the markers of `name`. `PARITY_UPDATE=1` writes it.
#[track_caller]
pub(crate) fn says(name: &str, text: &str) {
    let path = in_repository("docs/explanation/compatibility.md");
    let present =
        std::fs::read_to_string(&path).expect("docs/explanation/compatibility.md can be read");
    let (begin, end) = (
        format!("<!-- {name}: written by crates/http-api/tests/parity -->\n"),
        format!("<!-- /{name} -->\n"),
    );
    let inside = present
        .split_once(&begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(&end)?)));
    let (before, (old, after)) = inside.unwrap_or_else(|| {
        panic!("docs/explanation/compatibility.md has no lines {begin}{end}");
    });
    if old == text {
        return;
    }
    assert!(
        switch("PARITY_UPDATE").is_some(),
        "the table {name} in docs/explanation/compatibility.md is out of date: \
         PARITY_UPDATE=1 cargo test -p http-api --test parity"
    );
    let written = format!("{before}{begin}{text}{end}{after}");
    std::fs::write(&path, written).expect("docs/explanation/compatibility.md can be written");
}
