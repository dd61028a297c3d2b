//! The command `sandboxes logs`.

use client::Error;
use futures::TryStreamExt as _;
use serde_json::json;

use super::args::Logs;
use super::connect::Connection;
use super::output::{CommandOutput, plain};

/// Longest complete line in bytes; a longer one is printed in parts.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Adds advice to an error about a sandbox. The service answers 404 also for sandboxes of other users.
pub(super) fn explain_missing(error: Error, id: &str, connection: &Connection) -> anyhow::Error {
    if error.refusal().is_some_and(|refusal| refusal.status == 404) {
        let id = plain(id, 100);
        anyhow::anyhow!("there is no sandbox {id}: `agent-workspace sandboxes list` lists all")
    } else {
        connection.explain(error)
    }
}

/// Prints the last lines, and with `--follow` new ones, until the sandbox stops.
pub(super) async fn run(
    logs: &Logs,
    connection: &Connection,
    output: &CommandOutput,
) -> anyhow::Result<()> {
    let id = &logs.id;
    let sandboxes = connection.client.sandboxes();
    let pieces = sandboxes.logs(id, logs.tail, logs.follow).await;
    let pieces = pieces.map_err(|error| explain_missing(error, id, connection))?;
    let mut pieces = std::pin::pin!(pieces);
    let mut lines = Lines::default();
    loop {
        let piece = pieces.try_next().await;
        let piece = piece.map_err(|error| connection.explain(error));
        let complete = match &piece {
            Ok(Some(piece)) => lines.push(piece),
            Ok(None) | Err(_) => lines.finish(),
        };
        for line in complete {
            output.item(&json!({"line": line}), &line)?;
        }
        if piece?.is_none() {
            break;
        }
    }
    if logs.follow {
        output.note("the log has ended: the sandbox stopped, it wrote nothing for 15 minutes, or the service is stopping");
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// The lines that are complete now.
    fn push(&mut self, piece: &[u8]) -> Vec<String> {
        self.0.extend_from_slice(piece);
        let complete = match self.0.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if self.0.len() > MAX_LINE_BYTES => self.0.len(),
            None => return Vec::new(),
        };
        let complete: Vec<u8> = self.0.drain(..complete).collect();
        let complete = complete.strip_suffix(b"\n").unwrap_or(&complete);
        complete.split(|byte| *byte == b'\n').map(shown).collect()
    }

    fn finish(&mut self) -> Vec<String> {
        let rest = std::mem::take(&mut self.0);
        (!rest.is_empty())
            .then(|| shown(&rest))
            .into_iter()
            .collect()
    }
}

/// Removes terminal escape sequences: an agent controls this text.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let is_shown = |c: &char| *c == '\t' || !c.is_control();
    text.chars().filter(is_shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_complete_for_any_chunk_size() {
        let text = "one\n\nä and\ttwo\r\n\u{1b}[31mthree";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let pieces = text.as_bytes().chunks(size);
            let mut all: Vec<String> = pieces.flat_map(|piece| lines.push(piece)).collect();
            all.extend(lines.finish());
            assert_eq!(all, ["one", "", "ä and\ttwo", "[31mthree"], "{size}");
        }
        let mut lines = Lines::default();
        assert_eq!(
            lines.push(&vec![b'x'; MAX_LINE_BYTES + 1])[0].len(),
            MAX_LINE_BYTES + 1
        );
        assert!(lines.finish().is_empty());
    }
}
