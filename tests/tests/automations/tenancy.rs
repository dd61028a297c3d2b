//! Every route of the automations service, for users to whom an object does not belong.

use acceptance::{Client, Service};
use reqwest::Method;
use reqwest::header::{AUTHORIZATION, COOKIE};
use serde_json::{Value, json};

use crate::{API, http};

/// Objects of one user.
pub(crate) struct OwnObjects {
    pub(crate) automation: String,
    pub(crate) run: String,
    pub(crate) upload: String,
    pub(crate) webhook: String,
    pub(crate) organization: String,
}

impl OwnObjects {
    fn ids(&self) -> [&str; 4] {
        [&self.automation, &self.run, &self.upload, &self.webhook]
    }

    /// Requests to each of them.
    fn requests(&self) -> Vec<(Method, String, Option<Value>)> {
        let Self {
            automation,
            run,
            upload,
            webhook,
            ..
        } = self;
        let get = |path: String| (Method::GET, path, None);
        let post = |path: String| (Method::POST, path, None);
        let delete = |path: String| (Method::DELETE, path, None);
        let complete = json!({"status": "COMPLETED", "run_id": run});
        let copy = json!({"name": "copy", "trigger": {"type": "cron", "schedule": "* * * * *"},
            "entrypoint": "true", "tarball_path": format!("oh-internal://uploads/{upload}")});
        vec![
            get(format!("/{automation}")),
            get(format!("/{automation}/runs")),
            get(format!("/{automation}/tarball")),
            get(format!("/kv?automation_id={automation}")),
            get(format!("/kv/runs?automation_id={automation}")),
            delete(format!("/kv/runs?automation_id={automation}")),
            get(format!("/uploads/{upload}")),
            get(format!("/webhooks/{webhook}")),
            post(format!("/{automation}/dispatch")),
            post(format!("/runs/{run}/cancel")),
            post(format!("/webhooks/{webhook}/rotate-secret")),
            (
                Method::PATCH,
                format!("/{automation}"),
                Some(json!({"enabled": false})),
            ),
            (
                Method::PATCH,
                format!("/webhooks/{webhook}"),
                Some(json!({"name": "mine"})),
            ),
            (
                Method::POST,
                format!("/runs/{run}/phase"),
                Some(json!({"phase": "mine"})),
            ),
            (
                Method::POST,
                format!("/runs/{run}/complete"),
                Some(complete),
            ),
            (Method::POST, String::new(), Some(copy)),
            delete(format!("/{automation}")),
            delete(format!("/uploads/{upload}")),
            delete(format!("/webhooks/{webhook}")),
        ]
    }
}

const LISTS: [&str; 6] = [
    "?limit=100",
    "/tags",
    "/uploads",
    "/webhooks",
    "/drafts",
    "?created_by=others",
];

/// Sends a request of `user` with headers that name another user.
async fn forged(
    service: &Service,
    user: &Client,
    (method, path, body): (Method, &str, Option<&Value>),
    objects: &OwnObjects,
) -> (u16, String) {
    let request = http()
        .request(method, format!("{}{API}{path}", service.url()))
        .header("X-Session-API-Key", user.key())
        .header(AUTHORIZATION, format!("Bearer {}", user.key()))
        .header(COOKIE, "openhands_auth=admin; keycloak_auth=admin")
        .header("X-Org-Id", &objects.organization)
        .header("X-User-Id", &objects.organization)
        .header("X-OpenHands-User-Id", "admin");
    let request = match body {
        Some(body) => request.json(body),
        None => request,
    };
    let answer = request.send().await.expect("the service answers");
    let status = answer.status().as_u16();
    (status, answer.text().await.expect("a text"))
}

/// Asserts that another user finds none of these objects and changes none.
pub(crate) async fn assert_hidden(service: &Service, other: &Client, objects: &OwnObjects) {
    for (method, path, body) in objects.requests() {
        let target = format!("{API}{path}");
        let answer = other.call(method.clone(), &target, body.as_ref()).await;
        let is_hidden = |status: u16| matches!(status, 400 | 403 | 404 | 405 | 422);
        assert!(
            is_hidden(answer.status),
            "{method} {path}: {} {}",
            answer.status,
            answer.text
        );
        let (status, text) = forged(
            service,
            other,
            (method.clone(), &path, body.as_ref()),
            objects,
        )
        .await;
        assert!(
            is_hidden(status) || status == 401,
            "{method} {path}, forged: {status} {text}"
        );
        let anonymous = http().request(method.clone(), format!("{}{target}", service.url()));
        let anonymous = anonymous.send().await.expect("the service answers");
        assert_eq!(anonymous.status(), 401, "{method} {path} without a key");
    }
    for path in LISTS {
        let list = other.get(&format!("{API}{path}")).await;
        let (_, forged) = forged(service, other, (Method::GET, path, None), objects).await;
        for text in [&list.text, &forged] {
            let seen = objects.ids().into_iter().find(|id| text.contains(id));
            assert_eq!(seen, None, "{path}: {text}");
        }
    }
}
