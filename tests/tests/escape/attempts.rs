//! The table of attempts, their results, and which of these are right.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::network::is_root;
use crate::world::{EscapeWorld, Walls};

/// The modules that commands inside use.
pub(crate) const SCRIPTS: [(&str, &str); 9] = [
    ("bombs.py", include_str!("attempts/bombs.py")),
    ("escape.py", include_str!("attempts/escape.py")),
    ("files.py", include_str!("attempts/files.py")),
    ("kernel.py", include_str!("attempts/kernel.py")),
    ("neighbour.py", include_str!("attempts/neighbour.py")),
    ("network.py", include_str!("attempts/network.py")),
    ("processes.py", include_str!("attempts/processes.py")),
    ("runner.py", include_str!("attempts/runner.py")),
    ("workspace.py", include_str!("attempts/workspace.py")),
];
/// Characters of a reason in the table.
const MAX_REASON_CHARS: usize = 90;

/// What the runner prints of an attempt.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct AttemptResult {
    name: String,
    class: String,
    result: String,
    text: String,
    /// The name of the secret that the text must hold.
    proof: Option<String>,
    /// Why some machines cannot show the success.
    lacks: Option<String>,
    /// Why the walls of an ordinary user do not hold it.
    unheld: Option<String>,
    seconds: f64,
}

/// An attempt and whether its result is the expected one.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) result: String,
    pub(crate) is_right: bool,
    pub(crate) seconds: f64,
}

impl AttemptResult {
    pub(crate) fn verdict(self, world: &EscapeWorld) -> Verdict {
        let secret = self.proof.as_deref().map(|name| world.secret(name));
        let has_succeeded =
            self.result == "succeeded" && secret.is_none_or(|secret| self.text.contains(secret));
        let is_refused = matches!(self.result.as_str(), "succeeded" | "refused") && !has_succeeded;
        let is_excused = matches!(self.result.as_str(), "refused" | "missing")
            && (self.lacks.is_some() || !is_root());
        let is_unheld = has_succeeded && self.unheld.is_some() && !is_root();
        let is_right = match world.walls {
            Walls::None => has_succeeded || is_excused,
            Walls::Confined => is_refused || is_unheld || (self.result == "missing" && is_excused),
        };
        let reason: String = self.text.chars().take(MAX_REASON_CHARS).collect();
        let result = match (has_succeeded, world.walls) {
            (true, Walls::None) if secret.is_none() => format!("succeeded {reason}"),
            (true, Walls::None) => "succeeded".to_owned(),
            (true, Walls::Confined) if is_unheld => {
                format!("not held: {}", self.unheld.unwrap_or_default())
            }
            (true, Walls::Confined) => format!("GOT THROUGH {reason:?}"),
            (false, Walls::None) if is_excused => {
                let lacks = self.lacks.filter(|_| is_root());
                let lacks = lacks.unwrap_or_else(|| "this user may not".to_owned());
                format!("not shown: {lacks} ({reason})")
            }
            (false, _) => format!("{}: {reason}", self.result),
        };
        Verdict {
            name: self.name,
            class: self.class,
            seconds: self.seconds,
            result,
            is_right,
        }
    }
}

/// Makes all attempts but the bombs, in one command.
pub(crate) async fn make(world: &EscapeWorld) -> Vec<Verdict> {
    let names = world.chosen(false);
    if names.is_empty() {
        return Vec::new();
    }
    let results = world.attacker.make_attempts(&names).await;
    assert_eq!(results.len(), names.len(), "{results:#?}");
    let results = results.into_iter();
    results.map(|result| result.verdict(world)).collect()
}

/// A table for people.
pub(crate) fn table(verdicts: &[Verdict]) -> String {
    let mut text = String::from("\n| attempt | class | seconds | result |\n|---|---|---|---|\n");
    for it in verdicts {
        let sign = if it.is_right { "" } else { "**wrong** " };
        let result = it.result.replace(['\n', '|'], " ");
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {:.1} | {sign}{result} |",
            it.name, it.class, it.seconds
        );
    }
    let right = verdicts.iter().filter(|it| it.is_right).count();
    let _ = write!(text, "\n{right} of {} as expected", verdicts.len());
    text
}
