//! The requests and faults between storing the secrets and searching for them.

use acceptance::canaries::{PlantedSecrets, start_request, wrong_types};
use acceptance::client::Conversation;
use acceptance::{Client, Sandboxing};
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::CanaryBench;
use crate::provider::FakeProvider;

const MODEL: &str = "openai/stub";
const NOWHERE: &str = "http://127.0.0.1:9/v1";
const START: &str = "/api/v1/app-conversations";
/// Secrets that a start sends to the agent server by value.
const SENT_SECRETS: [&str; 15] = [
    "LlmKey",
    "AwsAccessKeyId",
    "AwsSecretAccessKey",
    "AwsSessionToken",
    "SearchKey",
    "McpBearer",
    "McpEnv",
    "McpQuery",
    "SseKey",
    "SseQuery",
    "ShttpKey",
    "ShttpQuery",
    "StdioEnv",
    "Request",
    "RequestOther",
];
/// Secrets that the agent server looks up.
const LOOKED_UP_SECRETS: [&str; 7] = [
    "Github",
    "Gitlab",
    "Bitbucket",
    "Forgejo",
    "AzureDevops",
    "Custom",
    "CustomLegacy",
];

/// Runs all steps. Searches for secrets after the errors, after the crash, and at the end.
pub(crate) async fn run(mut bench: CanaryBench) {
    let (ann, bob) = (
        PlantedSecrets::with_special_characters("Ann"),
        PlantedSecrets::with_special_characters("Bob"),
    );
    let (annas, bobs) = (bench.world.user("Ann"), bench.world.user("Bob"));
    for (user, planted) in [(&annas, &ann), (&bobs, &bob)] {
        bench.world.plant(user, planted, MODEL, NOWHERE).await;
    }
    let annas_conversation = run_conversation(&mut bench, &annas, "Ann", &ann).await;
    let bobs_conversation = run_conversation(&mut bench, &bobs, "Bob", &bob).await;
    access_other_user(&annas, &bobs_conversation).await;
    send_invalid_requests(&bench, &annas, &annas_conversation, &ann).await;
    fail_starts(&bench, &annas, &ann).await;
    bench.world.read_all(&annas).await;
    bench.world.read_all(&bobs).await;
    assert_no_leak(&bench);
    crash_and_restart(&mut bench, &annas, &annas_conversation).await;
    rotate_master_key(&mut bench);
    if let Some(server) = &bench.world.postgres {
        server.stop("immediate");
        // All responses are searched, whatever their status.
        let _ = annas.get("/api/v1/settings").await;
        let _ = annas.get("/ready").await;
        let _ = bench.world.run(&["doctor"]);
        bench.world.postgres.as_ref().expect("a database").resume();
        for path in ["/api/v1/settings", "/ready"] {
            acceptance::wait::wait_for(
                "the database",
                acceptance::world::RECONCILE_TIMEOUT,
                || async { (annas.get(path).await.status == 200).then_some(()) },
            )
            .await;
        }
    }
    bench.world.read_all(&annas).await;
    for command in [
        &["config"][..],
        &["doctor"],
        &["doctor", "--json"],
        &["keys", "list"],
        &["users", "list"],
        &["openapi"],
    ] {
        let printed = bench.world.run(command);
        assert!(!printed.is_empty(), "{command:?} prints nothing");
    }
    assert_no_leak(&bench);
    let _ = bench.world.run(&["users", "delete", "Ann", "--yes"]);
    bench.world.read_all(&bobs).await;
    bench.world.service.stop().await;
    assert_no_leak(&bench);
}

fn assert_no_leak(bench: &CanaryBench) {
    bench.world.assert_no_leak(&|_, _| false);
}

/// Runs a conversation from start to end, with a repeated request. Its sandbox calls all routes that it may use.
async fn run_conversation(
    bench: &mut CanaryBench,
    user: &Client,
    name: &str,
    of: &PlantedSecrets,
) -> Conversation {
    let request = start_request("hello", of);
    let mut task = Value::Null;
    for _ in 0..2 {
        let reply = user
            .try_repeatable(Method::POST, START, Some(&request), Some(name))
            .await;
        task = reply.expect("an answer").ok();
    }
    let task = user.task(task["id"].as_str().expect("an id")).await;
    let conversation = user.wait_until_ready(&task).await;
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;
    let created = bench.stub.creates().join("\n");
    for secret in SENT_SECRETS {
        assert!(
            created.contains(&of.core(secret)),
            "{secret} did not reach the agent server, so the search proves nothing"
        );
    }
    for secret in LOOKED_UP_SECRETS {
        assert!(
            !created.contains(&of.core(secret)),
            "{secret} is sent instead of looked up"
        );
    }
    let inside = bench.world.learn_sandbox(name, &conversation);
    let sandbox = &conversation.sandbox_id;
    let signed = bench.world.learn_addresses(name, user, sandbox).await;
    let has_ports = matches!(bench.world.service.sandboxing(), Sandboxing::Docker(_));
    assert!(signed > 0 || !has_ports, "no port has an address");
    bench.world.open(&inside, &conversation, of).await;
    user.send_message(&conversation.id, "More.").await;
    user.wait_for_execution_status(&conversation.id, "finished")
        .await
}

/// A user cannot read another user's secrets and events.
async fn access_other_user(user: &Client, other: &Conversation) {
    for path in ["settings/secrets", "settings/secrets/CUSTOM"] {
        let path = format!("/api/v1/sandboxes/{}/{path}", other.sandbox_id);
        let reply = user.get(&path).await;
        assert!(matches!(reply.status, 401 | 403 | 404), "{reply:?}");
    }
    let events = user.events(&other.id).await;
    assert!(events.is_empty());
}

/// Sends invalid requests and reports.
async fn send_invalid_requests(
    bench: &CanaryBench,
    user: &Client,
    conversation: &Conversation,
    of: &PlantedSecrets,
) {
    for (path, body) in wrong_types(of) {
        let reply = user.post(path, &body).await;
        assert!(
            (400..500).contains(&reply.status),
            "{path} {body}: {reply:?}"
        );
    }
    let put = json!({"name": 5, "value": of.value("Custom"), "description": []});
    for path in ["/api/v1/secrets/CUSTOM", "/api/secrets/CUSTOM_LEGACY"] {
        let _ = user.call(Method::PUT, path, Some(&put)).await;
    }
    let stranger = bench.world.caller(&format!("aw_{}", of.core("WrongKey")));
    for path in [
        "/api/v1/settings",
        "/api/settings",
        "/api/v1/users/me",
        "/api/v1/webhooks/secrets",
    ] {
        assert_eq!(stranger.get(path).await.status, 401, "{path}");
    }
    let key = conversation
        .session_api_key
        .as_deref()
        .expect("a running sandbox has a key");
    let inside = bench.world.caller(key);
    let info = json!({"id": conversation.id, "execution_status": "finished", "secret_registry": of.value("Request"),
        "agent": {"kind": "Agent", "llm": {"model": "m", "api_key": of.value("LlmKey")}}, "more": {"key": of.value("LlmKey")}});
    let odd =
        json!({"id": [5], "execution_status": of.value("LlmKey"), "agent": of.value("LlmKey")});
    for body in [
        info,
        odd,
        json!([of.value("LlmKey")]),
        json!(of.value("LlmKey")),
    ] {
        for caller in [&inside, &stranger] {
            let _ = caller.post("/api/v1/webhooks/conversations", &body).await;
        }
    }
    let path = format!("/api/v1/webhooks/events/{}", conversation.id);
    for body in [
        json!(of.value("LlmKey")),
        json!([of.value("LlmKey"), 5]),
        json!({"a": of.value("LlmKey")}),
    ] {
        let _ = inside.post(&path, &body).await;
    }
}

/// Lets starts fail with quotations of secrets by the agent server, its shell, and a git provider.
async fn fail_starts(bench: &CanaryBench, user: &Client, of: &PlantedSecrets) {
    let fails = async |request: &Value| {
        let task = user.start(request).await;
        let ended = user.wait_for_end(&task).await;
        assert_eq!(ended.status, "ERROR", "{ended:?}");
        if let Some(sandbox) = ended.sandbox_id {
            let path = format!("/api/v1/sandboxes/{sandbox}?sandbox_id={sandbox}");
            let _ = user.delete(&path).await;
        }
        ended.detail.unwrap_or_default()
    };
    bench.stub.set_faults("create-echo");
    let cause = fails(&start_request("hello", of)).await;
    assert!(
        cause.contains("**********"),
        "the cause quotes nothing, so the search proves nothing: {cause}"
    );
    bench.stub.set_faults("bash-echo");
    let mut request = start_request("hello", of);
    request["selected_repository"] = json!("acme/tools");
    request["git_provider"] = json!("github");
    let _ = fails(&request).await;
    bench.stub.set_faults("");
    // There is no key for the other vendor, so the request is refused.
    let mut request = start_request("hello", of);
    request["llm_model"] = json!("anthropic/other");
    let _ = user.post(START, &request).await;

    let provider = FakeProvider::start().await;
    let tokens =
        json!({"provider_tokens": {"gitlab": {"token": of.value("Gitlab"), "host": provider.url}}});
    let _ = user
        .post("/api/v1/secrets/git-providers", &tokens)
        .await
        .ok();
    for path in [
        "/api/v1/git/repositories/search?provider=gitlab",
        "/api/v1/git/branches/search?provider=gitlab&repository=a/b",
        "/api/v1/git/installations/search?provider=gitlab",
        "/api/v1/git/suggested-tasks/search",
        "/api/v1/users/git-info",
    ] {
        let _ = user.get(path).await;
    }
    let arguments = json!({"id": "a/b", "source_branch": "c", "target_branch": "d", "title": "t", "description": null});
    let ask = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "create_mr", "arguments": arguments}});
    // Once for each status of the fake provider.
    for _ in 0..4 {
        let answer = user.post("/mcp/mcp", &ask).await.ok();
        assert_eq!(answer["result"]["isError"], true, "{answer}");
    }
}

/// Kills the service during a run and an acknowledged start, and restarts it.
async fn crash_and_restart(bench: &mut CanaryBench, user: &Client, conversation: &Conversation) {
    user.send_message(&conversation.id, "HOLD").await;
    user.wait_for_execution_status(&conversation.id, "running")
        .await;
    let task = user.start_with("hello").await;
    bench.world.service.kill9();
    assert_no_leak(bench);
    bench.world.service.restart().await;
    bench.stub.continue_runs();
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;
    let second = user.wait_until_ready(&user.task(&task.id).await).await;
    let _ = bench.world.learn_sandbox("Ann", &second);
    if let Sandboxing::Process = bench.world.service.sandboxing() {
        user.pause(&second.sandbox_id).await;
    }
}

fn rotate_master_key(bench: &mut CanaryBench) {
    let _ = bench.world.run(&["secrets", "rotate-key", "--dry-run"]);
    bench.add_master_key();
    // The command blocks this thread, and the service runs in its own process.
    let printed = bench.world.run(&[
        "secrets",
        "rotate-key",
        "--wait",
        "1m",
        "--write-grace",
        "1s",
    ]);
    assert!(printed.contains("may be removed"), "{printed}");
}
