//! Secrets in a running sandbox: the agent server looks them up when a command names them, so a change applies to the next
//! command.
//!
//! The agent server masks secrets in output, and no file may contain a value. So commands write a copy with shifted letters.

use std::path::Path;

use acceptance::client::Conversation;
use acceptance::{Client, Sandboxing};
use serde_json::json;

use crate::support::{Setup, World};

/// The text after the command [`SHIFT_LETTERS`].
fn shifted(text: &str) -> String {
    let next = |c: char| match c {
        'a'..='y' => char::from(c as u8 + 1),
        other => other,
    };
    text.chars().map(next).collect()
}

const SHIFT_LETTERS: &str = "tr a-y b-z";

/// Sets both secrets: a custom one and a git provider's token.
async fn set(user: &Client, secret: &str, token: &str) {
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
fn command(file: &str) -> String {
    format!("RUN: echo \"$MY_SECRET $GITHUB_TOKEN\" | tee /dev/stderr | {SHIFT_LETTERS} > {file}")
}

pub(crate) async fn a_changed_secret_is_seen_by_the_next_command(setup: Setup) {
    let is_process = !matches!(setup.sandboxing, Sandboxing::Docker(_));
    let world = World::start(setup).await;
    let user = &world.user;
    let values = [
        ("canary-secret-one", "ghp_canary_one"),
        ("canary-secret-two", "ghp_canary_two"),
        ("canary-secret-three", "ghp_canary_three"),
    ];
    let sees = |(secret, token): (&str, &str)| Some(shifted(&format!("{secret} {token}")));

    set(user, values[0].0, values[0].1).await;
    let conversation = user.converse(&command("first.txt")).await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    user.wait_for_execution_status(id, "finished").await;
    assert_eq!(world.file(&conversation, "first.txt"), sees(values[0]));

    set(user, values[1].0, values[1].1).await;
    user.send_message(id, &command("second.txt")).await;
    user.wait_for_execution_status(id, "finished").await;
    assert_eq!(world.file(&conversation, "second.txt"), sees(values[1]));

    // A restarted agent server reads the look-up URLs and the key from its disk.
    let before = user.conversation(id).await.session_api_key;
    user.pause(sandbox).await;
    set(user, values[2].0, values[2].1).await;
    let resumed = user.resume(sandbox).await;
    if is_process {
        assert_ne!(resumed.session_api_key, before, "a start replaces the key");
        assert_key_is_invalid(
            &world,
            &conversation,
            &before.expect("the sandbox was RUNNING"),
        )
        .await;
    } else {
        assert_eq!(resumed.session_api_key, before, "a container keeps its key");
    }
    user.send_message(id, &command("third.txt")).await;
    user.wait_for_execution_status(id, "finished").await;
    assert_eq!(world.file(&conversation, "third.txt"), sees(values[2]));

    let events = serde_json::to_string(&world.assert_complete(id).await).unwrap_or_default();
    let log = world.service.log();
    for value in values.iter().flat_map(|(secret, token)| [secret, token]) {
        assert!(!events.contains(value), "{value} is in an event");
        assert!(!log.contains(value), "{value} is in the log");
    }
    assert!(events.contains("<secret-hidden>"), "nothing was masked");
    if is_process {
        // The agent server stores the look-up URLs and the key encrypted.
        let key = user.conversation(id).await.session_api_key;
        let key = key.expect("it is RUNNING");
        let kept = values.iter().flat_map(|(secret, token)| [*secret, *token]);
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
