//! What front ends read of a conversation's sandbox, and a change of its agent's model.

use acceptance::Client;
use acceptance::client::Conversation;
use serde_json::{Value, json};

use crate::support::{Setup, World};

/// A repository with one commit, a changed file, a new one, a skill and an agent hook.
const PROJECT: &str = "RUN: printf 'one\\n' > a.txt && git add a.txt && \
    git -c user.name=a -c user.email=a@example.test commit -qm one && printf 'two\\n' > a.txt && \
    mkdir -p .openhands/skills && printf -- '---\\nname: style\\n---\\nBe brief.\\n' > .openhands/skills/style.md && \
    printf '{\"hooks\": {\"Stop\": [{\"matcher\": \"*\", \"hooks\": [{\"type\": \"command\", \"command\": \"true\", \"timeout\": 7}]}]}}' \
    > .openhands/hooks.json";

pub(crate) async fn the_inside_of_a_sandbox_is_shown_and_its_model_switched(setup: Setup) {
    let world = World::start(setup).await;
    let user = &world.user;
    let llm = json!({"model": "openai/switched", "base_url": world.llm.base_url(), "api_key": "sk-switched"});
    let saved = user
        .post("/api/v1/settings/profiles/fast", &json!({"llm": llm}))
        .await;
    assert_eq!(saved.status, 201);

    let task = user.start_with(PROJECT).await;
    let conversation = user.wait_until_ready(&task).await;
    let id = &conversation.id;
    assert_eq!(user.task(&task.id).await.detail, None, "nothing to note");
    let listed = agent_server_profiles(&conversation).await;
    assert_eq!(listed["profiles"][0]["name"], "fast", "{listed}");
    user.wait_for_execution_status(id, "finished").await;
    assert_workspace_readable(user, id).await;

    let path = format!("/api/v1/app-conversations/{id}/switch_profile");
    let switched = user.post(&path, &json!({"profile_name": "fast"})).await;
    assert_eq!(switched.ok(), json!({"success": true}));
    user.send_message(id, "RUN: true").await;
    user.wait_for_execution_status(id, "finished").await;
    let records = world.llm.records();
    let last = records
        .iter()
        .rfind(|record| record.body["tools"].is_array());
    let asked = last.map(|record| &record.body["model"]);
    assert_eq!(asked, Some(&json!("switched")));
    let shown = format!("/api/v1/app-conversations?ids={id}");
    let shown = user.get(&shown).await.ok();
    assert_eq!(shown[0]["llm_model"], "openai/switched");

    // This agent is not an ACP agent with models of its own.
    let path = format!("/api/v1/app-conversations/{id}/switch_acp_model");
    let refused = user.post(&path, &json!({"model": "m2"})).await;
    let refused_body: &Value = &refused.body;
    assert_eq!(
        (refused.status, &refused_body["detail"]),
        (400, &json!("Agent server error: 400"))
    );
}

/// The model profiles at the conversation's agent server.
async fn agent_server_profiles(conversation: &Conversation) -> Value {
    let url = conversation.conversation_url.as_deref().unwrap_or_default();
    let (server, _) = url.split_once("/api/").expect("a URL");
    let key = conversation.session_api_key.as_deref().expect("a key");
    let direct = Client::new(server.to_owned(), key);
    direct.get("/api/profiles").await.ok()
}

/// Reads by the paths of front ends, which assume that the workspace is `/workspace/project`.
async fn assert_workspace_readable(user: &Client, id: &str) {
    let look = async |what: &str| {
        let path = format!("/api/v1/app-conversations/{id}/{what}");
        user.get(&path).await.ok()
    };
    let file = look("file?file_path=/workspace/project/a.txt").await;
    assert_eq!(file, "two\n");
    assert_eq!(look("file").await, "", "there is no plan");
    let files = look("files?path=/workspace/project").await;
    let written = [
        ".openhands/hooks.json",
        ".openhands/skills/style.md",
        "a.txt",
    ];
    assert_eq!(files, json!(written), "and nothing of git's");
    assert_eq!(look("files?path=/workspace/project/none").await, json!([]));
    let outside = format!("/api/v1/app-conversations/{id}/file?file_path=../../../../master.key");
    assert_eq!(user.get(&outside).await.status, 404);
    let listed = look("git/changes?path=/workspace/project&ref=HEAD").await;
    let status = |path: &str| {
        let mut all = listed.as_array().into_iter().flatten();
        all.find(|change| change["path"] == path)
            .map(|change| change["status"].clone())
    };
    assert_eq!(status("a.txt"), Some(json!("UPDATED")), "{listed}");
    let new = status(".openhands/hooks.json");
    assert_eq!(new, Some(json!("ADDED")), "{listed}");
    let diff = look("git/diff?path=/workspace/project/a.txt&ref=HEAD").await;
    let lines = |side: &str| diff[side].as_str().map(|text| text.trim().to_owned());
    assert_eq!(lines("original").as_deref(), Some("one"), "{diff}");
    assert_eq!(lines("modified").as_deref(), Some("two"), "{diff}");
    let skills = look("skills").await;
    let skill = &skills["skills"][0];
    assert_eq!(skill["name"], "style", "{skills}");
    assert_eq!(skill["content"], "Be brief.");
    let hook = json!({"type": "command", "command": "true", "timeout": 7, "async": false});
    let stop = json!({"event_type": "stop", "matchers": [{"matcher": "*", "hooks": [hook]}]});
    assert_eq!(look("hooks").await, json!({"hooks": [stop]}));
}
