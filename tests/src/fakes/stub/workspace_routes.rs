//! Routes about the workspace: one plan, one change and one hook; every profile and model is accepted.

use actix_web::HttpResponse;
use serde_json::json;

/// The response of one of these routes, or 404.
pub(super) fn respond(method: &str, segments: &[&str], path: Option<String>) -> HttpResponse {
    let ok = |body| HttpResponse::Ok().json(body);
    match (method, segments) {
        ("GET", ["api", "file", "download"]) => file(&path.unwrap_or_default()),
        ("GET", ["api", "git", "changes"]) => ok(json!([{"status": "MODIFIED", "path": "a.txt"}])),
        ("GET", ["api", "git", "diff"]) => ok(json!({"modified": "new", "original": "old"})),
        ("POST", ["api", "skills"]) => ok(json!({"skills": [], "sources": {}})),
        ("POST", ["api", "hooks"]) => {
            let hook =
                json!({"type": "command", "command": "echo hi", "timeout": 5, "async": false});
            ok(json!({"hook_config": {"stop": [{"matcher": "*", "hooks": [hook]}]}}))
        }
        ("GET", ["api", "profiles"]) => ok(json!({"profiles": [], "active_profile": null})),
        ("POST", ["api", "profiles", name]) => {
            let saved = json!({"name": name, "message": format!("Profile '{name}' saved")});
            HttpResponse::Created().json(saved)
        }
        ("POST", ["api", "conversations", _, "switch_llm" | "switch_acp_model"]) => {
            ok(json!({"success": true}))
        }
        _ => HttpResponse::NotFound().json(json!({"detail": "Not Found"})),
    }
}

fn file(path: &str) -> HttpResponse {
    if path.ends_with("/PLAN.md") {
        HttpResponse::Ok().body("# plan ✓")
    } else {
        HttpResponse::NotFound().json(json!({"detail": "File not found"}))
    }
}
