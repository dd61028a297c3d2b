//! What model calls cost, and the budgets that end them.

use std::time::Duration;

use serde_json::json;

use super::models::{CHAT, Endpoint, MESSAGES, answer, call, launch, token, world};
use crate::fixture::{ADA, BOB, ROOT, SPECS, World};

const OWN: &str = "/api/v1/usage/models?group_by=";
/// 1,000,000 input tokens of this model cost 1.25 USD, 100,000 output tokens 1 USD.
const CHAT_ANSWER: &str = r#"{"model": "gpt-5-2025-08-07", "choices": [], "usage": {"prompt_tokens": 1000000,
    "completion_tokens": 100000, "prompt_tokens_details": {"cached_tokens": 0}}}"#;

#[actix_web::test]
async fn calls_are_recorded_with_their_conversation_and_price() {
    let endpoint = Endpoint::answering(answer(
        "200 OK",
        "content-type: application/json\r\n",
        CHAT_ANSWER,
    ));
    let world = world().await;
    let (id, llm) = launch(&world, ADA, "openai/gpt-5", &endpoint.base).await;
    let token = token(&llm);
    for _ in 0..2 {
        assert_eq!(call(&world, &token, CHAT).await.status, 200);
    }
    let by_conversation = world.get(ADA, &format!("{OWN}conversation")).await.ok();
    let expected = json!({
        "items": [{
            "name": id.replace('-', ""), "calls": 2, "estimated_calls": 0, "unpriced_calls": 0,
            "input_tokens": 2_000_000, "cached_input_tokens": 0, "cache_write_tokens": 0,
            "output_tokens": 200_000, "cost": 4.5,
        }],
        "month_cost": 4.5, "month_budget": null, "organization": null,
    });
    assert_eq!(by_conversation, expected);
    let by_model = world.get(ADA, &format!("{OWN}model")).await.ok();
    assert_eq!(by_model["items"][0]["name"], "gpt-5-2025-08-07");
    let of_others = world.get(BOB, &format!("{OWN}day")).await.ok();
    assert_eq!(of_others["items"], json!([]));
    let all = "/api/v1/admin/usage/models?group_by=user";
    world
        .get(ADA, all)
        .await
        .refuses(403, "Only administrators may do this");
    let all = world.get(ROOT, all).await.ok();
    assert_eq!(
        (&all["items"][0]["name"], &all["items"][0]["cost"]),
        (&json!("ada"), &json!(4.5))
    );
    let earlier = world
        .get(ADA, &format!("{OWN}day&until=2020-01-01T00:00:00Z"))
        .await
        .ok();
    assert_eq!(earlier["items"], json!([]));
    let metrics = world.get(ROOT, "/metrics").await.text;
    assert!(
        metrics.contains("model_cost_nanodollars_total 4500000000"),
        "{metrics}"
    );
}

#[actix_web::test]
async fn failures_cost_nothing_and_unknown_prices_are_said() {
    let world = world().await;
    let failing = Endpoint::answering(answer("429 Too Many Requests", "", "{}"));
    let (_, llm) = launch(&world, ADA, "anthropic/claude-sonnet-4-5", &failing.base).await;
    assert_eq!(call(&world, &token(&llm), MESSAGES).await.status, 429);
    let none = world.get(ADA, &format!("{OWN}model")).await.ok();
    assert_eq!(none["items"], json!([]));
    let unknown = Endpoint::answering(answer("200 OK", "content-type: application/json\r\n", "{}"));
    let (_, llm) = launch(&world, ADA, "openai/in-house", &unknown.base).await;
    assert_eq!(call(&world, &token(&llm), CHAT).await.status, 200);
    let found = world.get(ADA, &format!("{OWN}model")).await.ok();
    let item = &found["items"][0];
    assert_eq!(item["name"], "openai/in-house");
    let counts = ["calls", "estimated_calls", "unpriced_calls"].map(|name| item[name].as_u64());
    assert_eq!(counts, [Some(1); 3], "{item}");
    assert_eq!(item["cost"], 0.0);
}

#[actix_web::test]
async fn a_conversation_stops_at_its_budget() {
    let endpoint = Endpoint::answering(answer(
        "200 OK",
        "content-type: application/json\r\n",
        CHAT_ANSWER,
    ));
    let world = world().await;
    let budget = json!({"max_budget_per_task": 4});
    world.post(ADA, "/api/v1/settings", &budget).await.ok();
    let (id, llm) = launch(&world, ADA, "openai/gpt-5", &endpoint.base).await;
    let first = token(&llm);
    assert_eq!(call(&world, &first, CHAT).await.status, 200);
    assert_eq!(call(&world, &first, CHAT).await.status, 200);
    for _ in 0..2 {
        let refused = call(&world, &first, CHAT).await;
        assert_eq!(refused.status, 402);
        let error = &refused.json()["error"];
        assert_eq!(error["type"], "billing_error");
        let text = error["message"].as_str().unwrap();
        assert!(
            text.contains("4 USD") && text.contains("max_budget_per_task"),
            "{text}"
        );
    }
    assert_eq!(endpoint.requests().len(), 2, "a refused call is not made");
    let (_, llm) = launch(&world, ADA, "openai/gpt-5", &endpoint.base).await;
    assert_eq!(call(&world, &token(&llm), CHAT).await.status, 200);
    let id = id.replace('-', "");
    let path = format!("/api/v1/audit?limit=100&object=conversation:{id}");
    assert!(world.app.audit.finish(Duration::from_secs(30)).await);
    let log = world.get(ROOT, &path).await.ok();
    let items = log["items"].as_array().unwrap();
    let refusals: Vec<_> = items
        .iter()
        .filter(|it| it["action"] == "model call")
        .collect();
    assert_eq!(refusals[0]["status"], 402, "{log}");
}

fn endpoint() -> Endpoint {
    let head = "content-type: application/json\r\n";
    Endpoint::answering(answer("200 OK", head, CHAT_ANSWER))
}

/// Each call costs 2.25 USD. The third one is refused with a text that has these parts.
async fn third_call_is_refused(world: &World, token: &str, parts: &[&str]) {
    for _ in 0..2 {
        assert_eq!(call(world, token, CHAT).await.status, 200);
    }
    let refused = call(world, token, CHAT).await;
    assert_eq!(refused.status, 402, "{}", refused.text);
    for part in parts {
        assert!(refused.text.contains(part), "{part}: {}", refused.text);
    }
}

#[actix_web::test]
async fn a_user_limits_a_month_in_the_settings() {
    let (endpoint, world) = (endpoint(), world().await);
    let budget = json!({"max_budget_per_month": 4});
    world.post(ADA, "/api/v1/settings", &budget).await.ok();
    let (_, llm) = launch(&world, ADA, "openai/gpt-5", &endpoint.base).await;
    let first = token(&llm);
    third_call_is_refused(&world, &first, &["4 USD", "max_budget_per_month"]).await;
    let usage = world.get(ADA, &format!("{OWN}day")).await.ok();
    assert_eq!(usage["month_budget"], 4.0);
    // The change holds for conversations that run, also with other models.
    let (_, llm) = launch(&world, ADA, "openai/gpt-5", &endpoint.base).await;
    assert_eq!(call(&world, &token(&llm), CHAT).await.status, 402);
    for budget in [json!(100), json!(null), json!(0)] {
        let change = json!({"max_budget_per_month": budget});
        world.post(ADA, "/api/v1/settings", &change).await.ok();
        assert_eq!(call(&world, &first, CHAT).await.status, 200);
    }
}

#[actix_web::test]
async fn an_organization_limits_the_month_of_all_members() {
    let (endpoint, world) = (endpoint(), world().await);
    let new = json!({"name": "crew", "owner": "ada"});
    let crew = world.post(ROOT, "/api/organizations", &new).await.json();
    let path = format!("/api/organizations/{}", crew["id"].as_str().unwrap());
    let bound = json!({"org_id": crew["id"]});
    let bound = world.post(ADA, "/api/v1/keys", &bound).await.json();
    let member = bound["key"].as_str().unwrap();
    let budget = json!({"month_budget": 4});
    let changed = world.patch(member, &path, &budget).await.ok();
    assert_eq!(
        (&changed["name"], &changed["month_budget"]),
        (&json!("crew"), &json!(4.0))
    );
    let (_, llm) = launch(&world, member, "openai/gpt-5", &endpoint.base).await;
    let shared = token(&llm);
    third_call_is_refused(&world, &shared, &["4 USD", "organization", "month_budget"]).await;
    let usage = world.get(member, &format!("{OWN}day")).await.ok();
    let expected = json!({"month_cost": 4.5, "month_budget": 4.0});
    assert_eq!(
        (&usage["organization"], &usage["month_budget"]),
        (&expected, &json!(null))
    );
    // It holds in this organization only.
    let (_, llm) = launch(&world, ADA, "openai/gpt-5", &endpoint.base).await;
    assert_eq!(call(&world, &token(&llm), CHAT).await.status, 200);
    for wrong in [json!(0), json!(-1), json!(1e12), json!("x")] {
        let answer = world
            .patch(member, &path, &json!({"month_budget": wrong}))
            .await;
        assert_eq!(answer.status, 422, "{wrong}: {}", answer.text);
    }
    let renamed = world
        .patch(member, &path, &json!({"name": "band"}))
        .await
        .ok();
    assert_eq!(renamed["month_budget"], 4.0);
    let removed = json!({"month_budget": null});
    let removed = world.patch(member, &path, &removed).await.ok();
    assert_eq!(
        (&removed["name"], &removed["month_budget"]),
        (&json!("band"), &json!(null))
    );
    assert_eq!(call(&world, &shared, CHAT).await.status, 200);
    assert!(world.app.audit.finish(Duration::from_secs(30)).await);
    let log = world.get(ROOT, "/api/v1/audit?limit=100").await.text;
    assert!(
        log.contains("month_budget:4") && log.contains("month_budget:none"),
        "{log}"
    );
}

#[actix_web::test]
async fn a_template_limits_its_conversations() {
    let (endpoint, world) = (endpoint(), world().await);
    let settings = json!({"default_sandbox_spec_id": SPECS[1], "max_budget_per_task": 100});
    world.post(ADA, "/api/v1/settings", &settings).await.ok();
    let (_, llm) = launch(&world, ADA, "openai/gpt-5", &endpoint.base).await;
    third_call_is_refused(&world, &token(&llm), &["4 USD", "conversation_budget"]).await;
}
