//! Conversations that share a sandbox, and sub-conversations.

use serde_json::json;

use crate::support::{Setup, World};

pub(crate) async fn conversations_share_a_sandbox_and_not_a_directory(setup: Setup) {
    let world = World::start(setup).await;
    let user = &world.user;
    let grouping = json!({"sandbox_grouping_strategy": "FEWEST_CONVERSATIONS"});
    let _ = user.post("/api/v1/settings", &grouping).await.ok();

    let first = user.converse("RUN: echo one > mine.txt").await;
    user.wait_for_execution_status(&first.id, "finished").await;
    let second = user.converse("RUN: echo two > mine.txt").await;
    user.wait_for_execution_status(&second.id, "finished").await;
    assert_eq!(second.sandbox_id, first.sandbox_id);
    assert_eq!(world.service.agent_servers().len(), 1);
    let mine = |id: &str| format!("{id}/mine.txt");
    for (conversation, expected) in [(&first, "one"), (&second, "two")] {
        let file = world.file(conversation, &mine(&conversation.id));
        assert_eq!(file.as_deref(), Some(expected));
    }

    // A sub-conversation works in its parent's sandbox.
    let message = json!({"content": [{"type": "text", "text": "RUN: cat mine.txt > part.txt"}]});
    let request = json!({"parent_conversation_id": second.id, "initial_message": message});
    let part = user.wait_until_ready(&user.start(&request).await).await;
    user.wait_for_execution_status(&part.id, "finished").await;
    let file = world.file(&second, &format!("{}/part.txt", second.id));
    assert_eq!(file.as_deref(), Some("two"));

    // The sandbox is deleted with its last conversation.
    user.delete_conversation(&second.id).await;
    assert!(user.find_conversation(&part.id).await.is_none());
    assert!(user.sandbox(&first.sandbox_id).await.is_some());
    user.send_message(&first.id, "RUN: echo three > mine.txt")
        .await;
    user.wait_for_execution_status(&first.id, "finished").await;
    assert_eq!(
        world.file(&first, &mine(&first.id)).as_deref(),
        Some("three")
    );
}

pub(crate) async fn a_planning_agent_writes_its_plan_where_front_ends_look(setup: Setup) {
    let world = World::start(setup).await;
    let user = &world.user;
    let edit = r##"TOOL: planning_file_editor {"command": "create", "path": "PLAN", "file_text": "# 1. OBJECTIVE\nA plan."}"##;
    let request = json!({"agent_type": "plan", "initial_message": {
        "content": [{"type": "text", "text": format!("Please plan.\n{edit}")}], "run": true}});
    let task = user.start(&request).await;
    let conversation = user.wait_until_ready(&task).await;
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;
    // A request without tools generates a title.
    let records = world.llm.records();
    let mut asked = records.iter().map(|record| &record.body);
    let asked = asked.find(|body| body["tools"].is_array());
    let asked = asked.expect("tools are offered");
    let tools: Vec<&str> = asked["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    for name in ["glob", "grep", "planning_file_editor"] {
        assert!(tools.contains(&name), "{tools:?}");
    }
    assert!(!tools.contains(&"terminal"), "{tools:?}");
    // The tool creates the document itself.
    let plan = world
        .file(&conversation, ".agents_tmp/PLAN.md")
        .expect("a plan");
    assert!(plan.contains("OBJECTIVE"), "{plan}");
    let system = asked["messages"][0].to_string();
    assert!(
        system.contains("IMPLEMENTATION STEPS"),
        "the structure is in the prompt"
    );
}
