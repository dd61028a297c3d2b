//! The beginning of a push: the references that it changes (`git help gitprotocol-pack`, "Reference Update Request").

use std::fmt::Write as _;
use std::time::Duration;

use domain::git_rights::PushRights;
use tokio::time::timeout;

use super::GitCallError;
use crate::relay::CallBody;

/// Most bytes of the list of references. Some 2,000 of them.
const MAX_COMMAND_BYTES: usize = 256 << 10;
/// Longest name of a reference.
const MAX_NAME_BYTES: usize = 1_024;
/// Longest time until the list is complete.
const COMMANDS_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a packet's length, which counts itself.
const LENGTH_BYTES: usize = 4;
/// Most bytes of a part of the report within its packet.
const MAX_SIDE_BAND_BYTES: usize = 65_000;
const MAX_LISTED_BRANCHES: usize = 5;

/// A reference that a push changes. An id of zeros stands for none: the reference is created or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefUpdate {
    /// `refs/heads/main`.
    pub name: String,
    /// The commit before.
    pub old: String,
    /// The commit after.
    pub new: String,
}

/// What a push asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Push {
    /// In the order of the request.
    pub updates: Vec<RefUpdate>,
    /// Why the service refused all of them.
    pub refusal: Option<String>,
    has_report: bool,
    has_side_band: bool,
}

/// Reads the list of references ahead. `None` if there is none that the service can read: it is signed, compressed, too
/// long, or invalid.
pub(super) async fn read(body: &mut CallBody) -> Result<Option<Push>, GitCallError> {
    let reading = async {
        let mut commands = CommandReader::default();
        loop {
            match commands.advance(body.ahead()) {
                CommandProgress::Complete => return Ok(Some(commands.push)),
                CommandProgress::Unreadable => return Ok(None),
                CommandProgress::Incomplete => {}
            }
            let has_more = body.read_ahead().await;
            if !has_more.map_err(|_| GitCallError::Incomplete)? {
                return Ok(None);
            }
        }
    };
    let read = timeout(COMMANDS_TIMEOUT, reading).await;
    read.map_err(|_| GitCallError::Incomplete)?
}

impl Push {
    /// Why it may not be made.
    pub(super) fn refused_by(&self, rights: &PushRights) -> Option<String> {
        let PushRights::Branches(allowed) = rights else {
            return None;
        };
        let refused = self
            .updates
            .iter()
            .find(|update| !rights.allows(&update.name))?;
        let mut names = allowed[..allowed.len().min(MAX_LISTED_BRANCHES)].join(", ");
        if allowed.len() > MAX_LISTED_BRANCHES {
            names.push_str(", …");
        }
        Some(format!(
            "agents may not push {}, only branches {names} of this repository",
            refused.name
        ))
    }

    /// The host's answer to a push of which it accepts no reference; `None` if git does not read one.
    pub(super) fn report(&self, reason: &str) -> Option<Vec<u8>> {
        if !self.has_report {
            return None;
        }
        let mut report = packet(b"unpack ok\n");
        for update in &self.updates {
            let mut line = String::new();
            let _ = writeln!(line, "ng {} agent-workspace: {reason}", update.name);
            report.extend(packet(line.as_bytes()));
        }
        report.extend(b"0000");
        if !self.has_side_band {
            return Some(report);
        }
        let mut wrapped = Vec::with_capacity(report.len() + 16);
        for part in report.chunks(MAX_SIDE_BAND_BYTES) {
            let mut numbered = vec![1];
            numbered.extend(part);
            wrapped.extend(packet(&numbered));
        }
        wrapped.extend(b"0000");
        Some(wrapped)
    }
}

fn packet(content: &[u8]) -> Vec<u8> {
    let mut packet = format!("{:04x}", content.len() + LENGTH_BYTES).into_bytes();
    packet.extend(content);
    packet
}

enum CommandProgress {
    Incomplete,
    Complete,
    Unreadable,
}

/// Reads packets as they come.
#[derive(Default)]
struct CommandReader {
    at: usize,
    push: Push,
}

impl CommandReader {
    /// Reads on in `bytes`, which begin like those of the call before.
    fn advance(&mut self, bytes: &[u8]) -> CommandProgress {
        loop {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some((length, rest)) = rest.split_at_checked(LENGTH_BYTES) else {
                return CommandProgress::Incomplete;
            };
            let length = std::str::from_utf8(length).ok();
            // A sign is no digit.
            let length = length.filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
            let length = length.and_then(|length| usize::from_str_radix(length, 16).ok());
            let length = match length {
                Some(0) => return CommandProgress::Complete,
                Some(length) if length > LENGTH_BYTES => length,
                _ => return CommandProgress::Unreadable,
            };
            if self.at + length > MAX_COMMAND_BYTES {
                return CommandProgress::Unreadable;
            }
            let Some(line) = rest.get(..length - LENGTH_BYTES) else {
                return CommandProgress::Incomplete;
            };
            if self.read_line(line).is_none() {
                return CommandProgress::Unreadable;
            }
            self.at += length;
        }
    }

    /// Reads one line; `None` if it names no reference.
    fn read_line(&mut self, line: &[u8]) -> Option<()> {
        let line = std::str::from_utf8(line).ok()?;
        let (command, capabilities) = line.split_once('\0').unwrap_or((line, ""));
        if self.push.updates.is_empty() {
            let mut all = capabilities.split_ascii_whitespace();
            let has = |name: &str| all.clone().any(|it| it == name);
            self.push.has_side_band |= has("side-band-64k");
            self.push.has_report |= all.any(|it| it.starts_with("report-status"));
        }
        let command = command.strip_suffix('\n').unwrap_or(command);
        if command.starts_with("shallow ") {
            return Some(());
        }
        let (old, rest) = command.split_once(' ')?;
        let (new, name) = rest.split_once(' ')?;
        let is_id =
            |id: &str| [40, 64].contains(&id.len()) && id.bytes().all(|b| b.is_ascii_hexdigit());
        let is_name = !name.is_empty()
            && name.len() <= MAX_NAME_BYTES
            && !name.chars().any(|c| c.is_control() || c == ' ');
        (is_id(old) && is_id(new) && is_name).then(|| {
            self.push.updates.push(RefUpdate {
                name: name.to_owned(),
                old: old.to_owned(),
                new: new.to_owned(),
            });
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ZERO: &str = "0000000000000000000000000000000000000000";
    const ONE: &str = "1111111111111111111111111111111111111111";

    fn commands(names: &[&str], capabilities: &str) -> Vec<u8> {
        let mut all = Vec::new();
        for (number, name) in names.iter().enumerate() {
            let mut line = format!("{ZERO} {ONE} {name}");
            if number == 0 {
                line = format!("{line}\0{capabilities}");
            }
            all.extend(packet(line.as_bytes()));
        }
        all.extend(b"0000PACK and its bytes");
        all
    }

    /// Reads a request in chunks of this size; also the whole body as it is sent on.
    async fn read_in(chunks: usize, bytes: &[u8]) -> (Result<Option<Push>, GitCallError>, Vec<u8>) {
        let (sender, mut body) = CallBody::channel(Some(bytes.len() as u64));
        let owned: Vec<_> = bytes.chunks(chunks).map(<[u8]>::to_vec).collect();
        let sending = async move {
            for chunk in owned {
                let _ = sender.send(chunk.into()).await;
            }
            let _ = sender.send(hyper::body::Bytes::new()).await;
        };
        let receiving = async {
            let push = read(&mut body).await;
            let rest = http_body_util::BodyExt::collect(body).await.unwrap();
            (push, rest.to_bytes().to_vec())
        };
        futures::join!(sending, receiving).1
    }

    #[tokio::test]
    async fn the_references_of_a_push_are_read_and_the_push_is_sent_as_it_came() {
        let names = ["refs/heads/main", "refs/tags/v1"];
        let bytes = commands(&names, " report-status-v2 side-band-64k object-format=sha1");
        for chunks in [1, 3, 64, 10_000] {
            let (push, sent) = read_in(chunks, &bytes).await;
            let push = push.unwrap().unwrap();
            let read: Vec<&str> = push.updates.iter().map(|it| it.name.as_str()).collect();
            assert_eq!(read, names);
            assert!(push.has_report && push.has_side_band);
            assert_eq!(sent, bytes, "chunks of {chunks}");
        }
        let shallow = [packet(format!("shallow {ONE}").as_bytes()), bytes].concat();
        let push = read_in(100, &shallow).await.0.unwrap().unwrap();
        assert_eq!(push.updates.len(), 2);
        let probe = read_in(100, b"0000").await.0.unwrap().unwrap();
        assert_eq!(probe.updates, []);
    }

    #[tokio::test]
    async fn a_list_that_is_signed_compressed_cut_or_too_long_is_not_read() {
        let many: Vec<String> = (0..5_000).map(|n| format!("refs/heads/{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let long = format!("refs/heads/{}", "n".repeat(MAX_NAME_BYTES));
        for bytes in [
            b"".to_vec(),
            b"00".to_vec(),
            b"0003".to_vec(),
            b"zzzz".to_vec(),
            b"+00f".to_vec(),
            packet(b"push-cert\0report-status\n"),
            vec![0x1f, 0x8b, 8, 0, 0],
            packet(b"\xff\xfe"),
            packet(format!("{ZERO} {ONE}").as_bytes()),
            packet(format!("{ZERO} {ONE} a b").as_bytes()),
            packet(format!("{ZERO} short refs/heads/a").as_bytes()),
            commands(&["refs/heads/a"], "report-status")[..60].to_vec(),
            commands(&[&long], "report-status"),
            commands(&many, "report-status"),
        ] {
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
            assert_eq!(read_in(1_000, &bytes).await.0.unwrap(), None, "{shown}");
        }
        // The client is gone.
        let (sender, mut body) = CallBody::channel(None);
        drop(sender);
        let gone = read(&mut body).await;
        assert!(matches!(gone, Err(GitCallError::Incomplete)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_never_ends_is_given_up() {
        let (sender, mut body) = CallBody::channel(None);
        let slow = async {
            for byte in commands(&["refs/heads/a"], "") {
                let _ = sender.send(vec![byte].into()).await;
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        };
        let reading = async move { read(&mut body).await };
        let (push, ()) = futures::join!(reading, slow);
        assert!(matches!(push, Err(GitCallError::Incomplete)));
    }

    #[tokio::test]
    async fn a_refused_push_gets_the_report_that_git_shows() {
        let names = ["refs/heads/agent/a", "refs/heads/main"];
        let bytes = commands(&names, "report-status side-band-64k");
        let mut push = read_in(100, &bytes).await.0.unwrap().unwrap();
        assert_eq!(push.refused_by(&PushRights::All), None);
        let rights = PushRights::Branches(vec!["agent/*".into()]);
        let reason = push.refused_by(&rights).unwrap();
        assert_eq!(
            reason,
            "agents may not push refs/heads/main, only branches agent/* of this repository"
        );
        let lines = format!(
            "000eunpack ok\n{}{}0000",
            String::from_utf8(packet(
                format!("ng {} agent-workspace: {reason}\n", names[0]).as_bytes()
            ))
            .unwrap(),
            String::from_utf8(packet(
                format!("ng {} agent-workspace: {reason}\n", names[1]).as_bytes()
            ))
            .unwrap(),
        );
        let wrapped = String::from_utf8(push.report(&reason).unwrap()).unwrap();
        let expected = format!("{:04x}\u{1}{lines}0000", lines.len() + 5);
        assert_eq!(wrapped, expected);
        push.has_side_band = false;
        assert_eq!(push.report(&reason).unwrap(), lines.as_bytes());
        push.has_report = false;
        assert_eq!(push.report(&reason), None);
    }
}
