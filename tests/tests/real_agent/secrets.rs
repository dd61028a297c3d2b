//! Secrets in a running sandbox: the agent server looks them up when a command names them, so a change applies to the next
//! command.
//!
//! The agent server masks secrets in output, and no file may contain a value. So commands write a copy with shifted letters.

use std::path::Path;

use acceptance::Client;
use acceptance::client::Conversation;
use acceptance::processes::PLACEHOLDER_PREFIX;
use serde_json::json;

use crate::support::World;

/// The text after the command [`SHIFT_LETTERS`].
fn shifted(text: &str) -> String {
    let next = |c: char| match c {
        'a'..='y' => char::from(c as u8 + 1),
        other => other,
    };
    text.chars().map(next).collect()
}

const SHIFT_LETTERS: &str = "tr a-y b-z";

/// The values that both secrets have, one pair after the other: a custom secret and a git provider's token.
const VALUES: [(&str, &str); 3] = [
    ("canary-secret-one", "ghp_canary_one"),
    ("canary-secret-two", "ghp_canary_two"),
    ("canary-secret-three", "ghp_canary_three"),
];

/// Gives both secrets the values of this number.
pub(crate) async fn set(user: &Client, number: usize) {
    let (secret, token) = VALUES[number];
    let secret = json!({"name": "MY_SECRET", "value": secret, "description": "for the test"});
    let stored = user.post("/api/v1/secrets", &secret).await;
    assert_eq!(stored.status, 201, "{stored:?}");
    let tokens = json!({"provider_tokens": {"github": {"token": token}}});
    let _ = user
        .post("/api/v1/secrets/git-providers", &tokens)
        .await
        .ok();
}

/// A command that prints both secrets, and writes a shifted copy.
pub(crate) fn command(file: &str) -> String {
    format!("RUN: echo \"$MY_SECRET $GITHUB_TOKEN\" | tee /dev/stderr | {SHIFT_LETTERS} > {file}")
}

/// Fails unless the command that wrote the file saw the values of this number. With the forward proxy, a placeholder stands for
/// the token of a git host.
pub(crate) fn assert_seen(world: &World, conversation: &Conversation, file: &str, number: usize) {
    let (secret, token) = VALUES[number];
    let written = world.file(conversation, file).unwrap_or_default();
    if world.service.sandboxing().has_proxy() {
        let expected = shifted(&format!("{secret} {PLACEHOLDER_PREFIX}"));
        assert!(written.starts_with(&expected), "{file}: {written}");
    } else {
        assert_eq!(written, shifted(&format!("{secret} {token}")), "{file}");
    }
}

/// Changes both secrets, and runs the command in the conversation.
pub(crate) async fn a_change_is_seen_by_the_next_command(
    world: &World,
    conversation: &Conversation,
    number: usize,
) {
    let (user, id) = (&world.user, &conversation.id);
    let file = format!("secrets-{number}.txt");
    set(user, number).await;
    user.send_message(id, &command(&file)).await;
    user.wait_for_execution_status(id, "finished").await;
    assert_seen(world, conversation, &file, number);
}

/// Resumes the paused sandbox. A restarted agent server reads the look-up URLs and the key from its disk. `former`: its key
/// before the pause.
pub(crate) async fn a_resumed_sandbox_sees_changes(
    world: &World,
    conversation: &Conversation,
    former: &str,
    keeps_its_key: bool,
) {
    let (user, id) = (&world.user, &conversation.id);
    let resumed = user.resume(&conversation.sandbox_id).await;
    let key = resumed.session_api_key.expect("it is RUNNING");
    if keeps_its_key {
        assert_eq!(key, former, "a container keeps its key");
    } else {
        assert_ne!(key, former, "a start replaces the key");
        assert_key_is_invalid(world, conversation, former).await;
    }
    a_change_is_seen_by_the_next_command(world, conversation, 2).await;

    let events = serde_json::to_string(&world.assert_complete(id).await).unwrap_or_default();
    let log = world.service.log();
    for value in VALUES.iter().flat_map(|(secret, token)| [secret, token]) {
        assert!(!events.contains(value), "{value} is in an event");
        assert!(!log.contains(value), "{value} is in the log");
    }
    assert!(events.contains("<secret-hidden>"), "nothing was masked");
    if !keeps_its_key {
        // The agent server stores the look-up URLs and the key encrypted.
        let kept = VALUES.iter().flat_map(|(secret, token)| [*secret, *token]);
        let kept: Vec<&str> = kept.chain([key.as_str()]).collect();
        let files = search(&world.service.data_dir(), &kept);
        assert!(files > 10, "only {files} files were searched");
    }
}

/// Fails if the service accepts a report with this key, or the agent server a request.
async fn assert_key_is_invalid(world: &World, conversation: &Conversation, key: &str) {
    let now = world.user.conversation(&conversation.id).await;
    let caller = world.user.with_key(key);
    let events = format!("/api/v1/webhooks/events/{}", conversation.id);
    assert_eq!(caller.post(&events, &json!([])).await.status, 401);
    let secrets = format!("/api/v1/sandboxes/{}/settings/secrets", now.sandbox_id);
    assert_eq!(caller.get(&secrets).await.status, 401);
    let url = now
        .conversation_url
        .expect("a running conversation has a URL");
    let direct = Client::new(url, key);
    assert_eq!(direct.get("/events/search").await.status, 401);
}

/// Fails if a file below `directory` contains one of the texts. Returns the number of files.
fn search(directory: &Path, texts: &[&str]) -> usize {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut files = 0;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            files += search(&path, texts);
        } else if let Ok(bytes) = std::fs::read(&path) {
            files += 1;
            for text in texts {
                let mut parts = bytes.windows(text.len());
                let found = parts.any(|part| part == text.as_bytes());
                assert!(!found, "{text} is in {}", path.display());
            }
        }
    }
    files
}
