//! Replays requests that were recorded with the reference, and compares the responses.
//!
//! `tests/fixtures/recordings-*.json` holds the recorded exchanges: the request, the status, and the body of an
//! error word by word or the shape of a response. Exchanges of a session are replayed in order. `differences.rs` lists
//! intended differences with reasons. Another difference fails, and so does an entry that no longer differs.
//! `docs/reference/compatibility-recordings.md` is written from both (`RECORDINGS_UPDATE=1`), and checked.

mod compare;
mod differences;
mod exchange;
mod replay;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use acceptance::print_line;

use crate::differences::{DIFFERENCES, MEMBER_DIFFERENCES, NOT_REPLAYED};
use crate::exchange::RecordedExchange;

const DOCUMENT: &str = "docs/reference/compatibility-recordings.md";

#[tokio::test]
async fn recorded_exchanges_agree_except_for_listed_differences() {
    let exchanges = exchange::all();
    let mut found = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for session in ["fresh", "settings", "work", "auth", "keyed", "legacy"] {
        found.extend(replay::session(&exchanges, session, &mut seen).await);
    }
    let replayed = found.len();
    let differing: BTreeMap<&str, &String> = found
        .iter()
        .filter_map(|(name, difference)| Some((name.as_str(), difference.as_ref()?)))
        .collect();
    print_line(&format!(
        "{replayed} of {} recorded exchanges replayed: {} agree, {} differ on purpose",
        exchanges.len(),
        replayed - differing.len(),
        differing.len()
    ));

    let mut failures = Vec::new();
    for (name, difference) in &differing {
        if reason(name).is_none() {
            failures.push(format!("{name} differs: {difference}"));
        }
    }
    for (_, names) in DIFFERENCES {
        let stale = names.iter().filter(|name| !differing.contains_key(*name));
        failures.extend(stale.map(|name| format!("{name} is listed and no longer differs")));
    }
    for member in MEMBER_DIFFERENCES.iter().filter(|member| member.is_ours) {
        if !seen.contains(member.name) {
            failures.push(format!(
                "{} is listed and no response contains it",
                member.name
            ));
        }
    }
    for (_, names) in NOT_REPLAYED {
        let unknown = names
            .iter()
            .filter(|name| !exchanges.iter().any(|exchange| exchange.name == **name));
        failures.extend(unknown.map(|name| format!("{name} is listed and not recorded")));
    }
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );

    let document = document(&exchanges, &differing, replayed);
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(DOCUMENT);
    if is_updating() {
        std::fs::write(&path, &document).expect("the document can be written");
    }
    let present = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        present == document,
        "{DOCUMENT} is out of date: RECORDINGS_UPDATE=1 cargo test -p acceptance --test recordings"
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "a switch for the person who runs this test"
)]
fn is_updating() -> bool {
    std::env::var_os("RECORDINGS_UPDATE").is_some()
}

fn reason(name: &str) -> Option<&'static str> {
    let entry = DIFFERENCES.iter().find(|(_, names)| names.contains(&name));
    entry.map(|(reason, _)| *reason)
}

fn document(
    exchanges: &[RecordedExchange],
    differing: &BTreeMap<&str, &String>,
    replayed: usize,
) -> String {
    let mut text = format!(
        "# Recorded exchanges\n\n\
         Written by `tests/tests/recordings` (`RECORDINGS_UPDATE=1 cargo test -p acceptance --test recordings`), which fails \
         when this\ndocument is out of date. Of {} exchanges recorded with the reference on the routes that exist, {replayed} \
         are replayed;\n{} agree in status and shape, {} differ on purpose. `v1` is release 1.11.0, `v0` the legacy \
         operations of 1.3.0.\n",
        exchanges.len(),
        replayed - differing.len(),
        differing.len()
    );
    text.push_str("\n## Members\n\n| member | where | ours | why |\n|---|---|---|---|\n");
    for member in MEMBER_DIFFERENCES {
        let place = if member.in_legacy {
            "legacy operations"
        } else {
            "V1"
        };
        let ours = if member.is_ours { "added" } else { "left out" };
        let _ = writeln!(
            text,
            "| `{}` | {place} | {ours} | {} |",
            member.name, member.reason
        );
    }
    for (reason, names) in DIFFERENCES {
        let _ = write!(
            text,
            "\n## {reason}\n\n| exchange | request | reference → ours |\n|---|---|---|\n"
        );
        for exchange in exchanges
            .iter()
            .filter(|exchange| names.contains(&exchange.name.as_str()))
        {
            let difference = differing
                .get(exchange.name.as_str())
                .map_or("", |text| text.as_str());
            let path: String = exchange.path.chars().take(90).collect();
            let _ = writeln!(
                text,
                "| {} | `{} {}` | {} |",
                exchange.name,
                exchange.method,
                cell(&path),
                cell(difference)
            );
        }
    }
    text.push_str("\n## Not replayed\n\n| exchanges | why |\n|---|---|\n");
    for (reason, names) in NOT_REPLAYED {
        let _ = writeln!(text, "| {} | {reason} |", names.join(", "));
    }
    text
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
