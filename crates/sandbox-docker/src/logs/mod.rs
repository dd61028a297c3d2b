//! Quotes the end of a container's log without its keys.

mod reader;

use std::collections::VecDeque;

use bollard::query_parameters::LogsOptionsBuilder;
use domain::error::chain;
use futures::TryStreamExt;
use sandbox_provider::quote_log;
use secrecy::SecretString;

use crate::engine::Engine;

/// Limits of the lines to request and the bytes to read: a single line may be long.
const TAIL_LINES: &str = "60";
const MAX_READ_BYTES: usize = 512 * 1024;
const MAX_KEPT_BYTES: usize = 32 * 1024;

/// The last lines of a container's log with masked keys. Empty if there are none or the engine fails: the cause is reported
/// anyway.
pub(crate) async fn quote(engine: &Engine, container: &str, keys: &[SecretString]) -> String {
    let options = LogsOptionsBuilder::new()
        .stdout(true)
        .stderr(true)
        .tail(TAIL_LINES)
        .build();
    let read = engine.call("reading the log", |docker| async move {
        let mut parts = docker.logs(container, Some(options));
        let (mut kept, mut read) = (VecDeque::new(), 0_usize);
        while let Some(part) = parts.try_next().await? {
            let part = part.into_bytes();
            read += part.len();
            kept.extend(part);
            kept.drain(..kept.len().saturating_sub(MAX_KEPT_BYTES));
            if read > MAX_READ_BYTES {
                break;
            }
        }
        let is_truncated = read > kept.len();
        Ok((Vec::from(kept), is_truncated))
    });
    match read.await {
        Ok((end, is_truncated)) => {
            let text = String::from_utf8_lossy(&end);
            quote_log(
                if is_truncated {
                    whole_lines(&text)
                } else {
                    &text
                },
                keys,
                &[],
            )
        }
        Err(error) => {
            tracing::debug!(error = %chain(&error), container, "cannot read the log of an ended sandbox");
            String::new()
        }
    }
}

/// Drops the first line, which may start in the middle of a key.
fn whole_lines(text: &str) -> &str {
    text.split_once('\n').map_or("", |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_may_start_within_a_key_is_dropped() {
        assert_eq!(whole_lines("half a key\nall of it"), "all of it");
        assert_eq!(whole_lines("half a key"), "");
    }
}
