//! Skills and marketplaces.

use domain::skill::ListedSkill;
use serde_json::{Value, json};

use crate::fixture::{ADA, World};

const SEARCH: &str = "/api/v1/skills/search";
const MARKETPLACES: &str = "/api/v1/skills/marketplace-skills";

fn skill(source: &str, name: &str) -> ListedSkill {
    ListedSkill {
        name: name.into(),
        kind: "knowledge".into(),
        source: source.into(),
        triggers: (name == "git").then(|| vec!["git".into()]),
    }
}

#[actix_web::test]
async fn skills_have_stable_pages() {
    let world = World::idle().await;
    let empty = json!({"items": [], "next_page_id": null});
    world.get(ADA, SEARCH).await.is(200, &empty);
    world.skills.set(vec![
        skill("user", "a"),
        skill("global", "git"),
        skill("global", "docker"),
    ]);
    let first = world.get(ADA, &format!("{SEARCH}?limit=2")).await.ok();
    let expected = json!([
        {"name": "docker", "type": "knowledge", "source": "global", "triggers": null},
        {"name": "git", "type": "knowledge", "source": "global", "triggers": ["git"]},
    ]);
    assert_eq!(first["items"].to_string(), expected.to_string());
    let next = first["next_page_id"].as_str().unwrap();
    // Skills added meanwhile do not shift the pages.
    world.skills.set(vec![
        skill("user", "a"),
        skill("global", "aaa"),
        skill("global", "docker"),
    ]);
    let last = world
        .get(ADA, &format!("{SEARCH}?limit=2&page_id={next}"))
        .await
        .ok();
    assert_eq!(last["items"][0]["name"], "a");
    assert_eq!(last["next_page_id"], Value::Null);
    let foreign = world.get(ADA, &format!("{SEARCH}?page_id=zzz")).await;
    assert_eq!(foreign.status, 422);
    assert_eq!(
        foreign.json()["detail"][0]["loc"],
        json!(["query", "page_id"])
    );
    world
        .get("aw_wrong", SEARCH)
        .await
        .refuses(401, "Unauthorized");
    let limit = world.get(ADA, &format!("{SEARCH}?limit=101")).await;
    assert_eq!(limit.status, 422);
}

#[actix_web::test]
async fn marketplaces_list_offers_and_errors() {
    let world = World::idle().await;
    let nothing = json!({"skills": [], "plugins": [], "marketplace_skills": {}, "errors": []});
    world
        .post(ADA, MARKETPLACES, &json!([]))
        .await
        .is(200, &nothing);
    let asked = json!([
        {"name": "team", "source": "github:acme/x", "ref": "v1", "auto_load": true, "scope": "personal"},
        {"name": "broken", "source": "https://git.example/r.git"},
        {"name": "inside", "source": "https://git.internal/r.git"},
        {"name": "own", "source": "skills/own"},
        {"name": "ssh", "source": "git@github.com:acme/x.git"},
        {"name": "odd", "source": "github:acme/x", "ref": "--upload-pack=x"},
    ]);
    let offers = world.post(ADA, MARKETPLACES, &asked).await.ok();
    let expected = json!({
        "skills": [{"name": "acme/x.git", "type": "knowledge", "source": "marketplace:team", "triggers": null}],
        "plugins": [{"name": "acme/x.git", "description": "v1", "source": "github:acme/x", "marketplace": "team"}],
        "marketplace_skills": {"team": ["acme/x.git"]},
        "errors": [
            "broken: the fake marketplace is broken",
            "inside: its host may not be called: it is in a private network",
            "own: it is a path, which is read where conversations run: only repositories are read here",
            "ssh: only repositories at https:// addresses are read here",
            "odd: `ref` is not a branch, tag or commit",
        ],
    });
    assert_eq!(offers.to_string(), expected.to_string());
    let many: Vec<Value> = (0..25)
        .map(|n| json!({"name": format!("m{n}"), "source": "github:acme/x"}))
        .collect();
    let offers = world.post(ADA, MARKETPLACES, &json!(many)).await.ok();
    assert_eq!(offers["skills"].as_array().unwrap().len(), 20);
    assert_eq!(offers["errors"].as_array().unwrap().len(), 5);
}

#[actix_web::test]
async fn invalid_marketplaces_are_refused() {
    let world = World::idle().await;
    let asked = json!([
        {"source": "x"},
        {"name": "1bad", "source": "../x", "repo_path": "/etc", "auto_load": "perhaps", "ref": 7, "scope": "x"},
    ]);
    let refused = world.post(ADA, MARKETPLACES, &asked).await;
    assert_eq!(refused.status, 422);
    let found: Vec<_> = refused.json()["detail"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["loc"].to_string(), item["type"].clone()))
        .collect();
    let expected = [
        (r#"["body",0,"name"]"#, "missing"),
        (r#"["body",1,"name"]"#, "value_error"),
        (r#"["body",1,"source"]"#, "value_error"),
        (r#"["body",1,"ref"]"#, "string_type"),
        (r#"["body",1,"repo_path"]"#, "value_error"),
        (r#"["body",1,"auto_load"]"#, "bool_parsing"),
        (r#"["body",1,"scope"]"#, "enum"),
    ]
    .map(|(place, kind)| (place.to_owned(), json!(kind)));
    assert_eq!(found, expected);
    let list = world.post(ADA, MARKETPLACES, &json!({})).await;
    assert_eq!(list.json()["detail"][0]["type"], "list_type");
}
