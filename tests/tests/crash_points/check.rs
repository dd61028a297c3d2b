//! Checks after a case: all acknowledged data exists exactly once, and nothing else.

use std::collections::BTreeSet;

use acceptance::Sandboxing;
use acceptance::client::Conversation;
use acceptance::service::Trace;
use reqwest::Method;
use serde_json::Value;

use crate::bench::CrashBench;
use crate::rows::FORBIDDEN_ROWS;
use crate::scenario::is_one_run;

/// The expected state after a case.
pub(crate) struct ExpectedState {
    pub(crate) conversations: Vec<Conversation>,
    /// Whether the sandbox of these conversations runs; otherwise it does not exist.
    pub(crate) has_sandbox: bool,
    /// Ids of events that the first conversation has in addition to those of its run.
    pub(crate) events: Vec<String>,
}

/// Waits until a deleted sandbox has no row, process and file any more.
pub(crate) async fn wait_until_deleted(bench: &mut CrashBench, id: &str) {
    bench
        .until("deletion of a sandbox", async |bench| {
            let rows = bench.read(&format!("/api/v1/sandboxes?id={id}")).await;
            let mut traces = bench.service.traces_of(id);
            traces.retain(Trace::exists);
            let processes = bench.service.processes();
            if !(rows[0].is_null() && traces.is_empty() && processes.is_empty()) {
                return Err(format!("{rows} {traces:?} {processes:?}"));
            }
            // The API hides a sandbox as soon as its deletion starts; the row is deleted last.
            let rows = bench.query(&format!("select count(*) from sandboxes where id = '{id}'"));
            (rows == "0").then_some(()).ok_or(rows)
        })
        .await;
}

/// Waits until the agent server has deleted a conversation and the service has recorded that.
pub(crate) async fn wait_until_forgotten(bench: &mut CrashBench, gone: &Conversation) {
    let url = gone
        .conversation_url
        .clone()
        .expect("the conversation has run");
    let key = gone
        .session_api_key
        .clone()
        .expect("the conversation has run");
    let direct = acceptance::Client::new(url, &key);
    bench
        .until("deletion at the agent server", async |bench| {
            // By the gateway of the service, which may be killed.
            let answer = direct.try_call(Method::GET, "/events/count", None).await;
            let answer = answer.map_err(|error| error.to_string())?;
            if answer.status != 404 {
                return Err(answer.text);
            }
            let pending = bench.query("select count(*) from deleted_conversations where pending");
            (pending == "0").then_some(()).ok_or(pending)
        })
        .await;
}

/// Checks the whole state of the running service.
pub(crate) async fn assert_state(bench: &mut CrashBench, expected: &ExpectedState) {
    let ids = |all: &[Conversation]| -> BTreeSet<String> {
        all.iter()
            .map(|conversation| conversation.id.clone())
            .collect()
    };
    let found = bench.user.conversations().await;
    assert_eq!(found.len(), expected.conversations.len(), "{found:?}");
    assert_eq!(ids(&found), ids(&expected.conversations), "conversations");

    let sandboxes = bench.user.sandboxes().await;
    let expected_sandboxes: BTreeSet<&str> = expected
        .conversations
        .iter()
        .filter(|_| expected.has_sandbox)
        .map(|conversation| conversation.sandbox_id.as_str())
        .collect();
    let running = sandboxes
        .iter()
        .filter(|sandbox| sandbox.status == "RUNNING");
    let running: BTreeSet<&str> = running.map(|sandbox| sandbox.id.as_str()).collect();
    assert_eq!(running, expected_sandboxes, "running sandboxes");
    assert_eq!(sandboxes.len(), expected_sandboxes.len(), "{sandboxes:?}");
    let servers = bench.service.agent_servers();
    assert_eq!(servers.len(), expected_sandboxes.len(), "{servers:?}");
    bench.service.assert_no_orphans(&[&bench.user]).await;

    for (conversation, is_first) in expected.conversations.iter().zip([true, false]) {
        let more = if is_first { &*expected.events } else { &[] };
        assert_events(bench, conversation, expected.has_sandbox, more).await;
    }
    assert_rows_legal(bench).await;
}

/// The service has each event of the agent server, and each event that the test reported, exactly once.
async fn assert_events(
    bench: &mut CrashBench,
    conversation: &Conversation,
    has_sandbox: bool,
    more: &[String],
) {
    let id = &conversation.id;
    let mut wanted = more.to_vec();
    if has_sandbox {
        let now = bench.user.conversation(id).await;
        let theirs = bench.user.events_at_agent_server(&now).await;
        assert!(is_one_run(&theirs), "at the agent server: {theirs:#?}");
        wanted.extend(ids(&theirs));
        wanted.sort_unstable();
    }
    let ours = bench
        .until("all events", async |bench| {
            let ours = bench.user.events(id).await;
            let mut found = ids(&ours);
            found.sort_unstable();
            if found == wanted || !has_sandbox {
                return Ok(ours);
            }
            Err(format!("{found:?} instead of {wanted:?}"))
        })
        .await;
    assert!(is_one_run(&ours), "{ours:#?}");
    assert_eq!(bench.user.count_events(id).await, ours.len());
}

fn ids(events: &[Value]) -> Vec<String> {
    let ids = events.iter().filter_map(|event| event["id"].as_str());
    ids.map(str::to_owned).collect()
}

async fn assert_rows_legal(bench: &mut CrashBench) {
    let counts = FORBIDDEN_ROWS
        .map(|(_, count)| format!("({count})"))
        .join(" || ' ' || ");
    let counts = format!("select {counts}");
    bench
        .until("legal state of all rows", async |bench| {
            let found = bench.query(&counts);
            let wrong = FORBIDDEN_ROWS
                .iter()
                .zip(found.split(' '))
                .filter(|(_, number)| *number != "0");
            let wrong: Vec<String> = wrong
                .map(|((what, _), number)| format!("{number} {what}"))
                .collect();
            if wrong.is_empty() {
                Ok(())
            } else {
                Err(wrong.join(", "))
            }
        })
        .await;
}

/// Deletes the data of a case, and checks that nothing remains.
pub(crate) async fn clear(bench: &mut CrashBench, expected: ExpectedState) {
    for conversation in &expected.conversations {
        bench.user.delete_conversation(&conversation.id).await;
    }
    if let Some(first) = expected.conversations.first() {
        wait_until_deleted(bench, &first.sandbox_id).await;
    }
    let nothing = ExpectedState {
        conversations: Vec::new(),
        has_sandbox: false,
        events: Vec::new(),
    };
    assert_state(bench, &nothing).await;
    let tables = ["events", "conversations", "sandboxes"];
    let counts = tables.map(|table| format!("(select count(*) from {table})"));
    let counts = format!("select {}", counts.join(" || ' ' || "));
    // The row of a sandbox is deleted last.
    bench
        .until("empty tables", async |bench| {
            let left = bench.query(&counts);
            let is_empty = left == "0 0 0";
            is_empty
                .then_some(())
                .ok_or_else(|| format!("{left} rows of {tables:?}"))
        })
        .await;
    if let Sandboxing::Process = bench.service.sandboxing() {
        // The file of its lock is deleted after the row.
        bench
            .until("empty directory of sandboxes", async |bench| {
                let left = std::fs::read_dir(bench.service.data_dir().join("sandboxes"));
                let left = left.into_iter().flatten().flatten();
                let left: Vec<_> = left.map(|entry| entry.path()).collect();
                left.is_empty()
                    .then_some(())
                    .ok_or_else(|| format!("{left:?}"))
            })
            .await;
    }
}

/// Waits until the service has removed the network of the containers.
pub(crate) async fn assert_network_removed(bench: &mut CrashBench) {
    let instance = bench
        .service
        .instance()
        .expect("a started service has an instance");
    let Sandboxing::Docker(engine) = bench.service.sandboxing().clone() else {
        return;
    };
    bench
        .until("removal of the network", async |_| {
            let left = engine.networks_of(&instance);
            if left.is_empty() {
                return Ok(());
            }
            Err(left.join(", "))
        })
        .await;
}
