//! Signing in to the real binary: the first link, a password, a session, and a kill while a link is used.

mod device_login;
mod mail;
mod organizations;

use std::path::Path;
use std::process::Output;

use acceptance::Service;
use acceptance::wait::wait_for;
use reqwest::header::{COOKIE, HeaderValue, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

const PASSWORD: &str = "correct horse battery";
/// The crash point of changes to users.
const COMMIT: &str = "commit of AdministrationRepository::administer";

/// A browser with one cookie at most. It says that a page of the service sends its requests.
struct Browser {
    http: Client,
    url: String,
    cookie: Option<String>,
}

impl Browser {
    fn new(service: &Service) -> Self {
        let http = Client::builder()
            .redirect(Policy::none())
            .timeout(std::time::Duration::from_secs(60))
            .build();
        Self {
            http: http.expect("a client can be built"),
            url: format!("http://{}", service.address()),
            cookie: None,
        }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self
            .http
            .request(method, format!("{}{path}", self.url))
            .header("Sec-Fetch-Site", "same-origin");
        match &self.cookie {
            Some(cookie) => request.header(COOKIE, cookie),
            None => request,
        }
    }

    async fn get(&self, path: &str) -> Response {
        let sent = self.request(Method::GET, path).send().await;
        sent.expect("the service answers")
    }

    /// Sends a form, and keeps the cookie of the answer. `None` if the service was killed.
    async fn try_post(&mut self, path: &str, form: &[(&str, &str)]) -> Option<Response> {
        let body = form_body(form);
        let request = self
            .request(Method::POST, path)
            .header("Content-Type", "application/x-www-form-urlencoded");
        let answer = request.body(body).send().await.ok()?;
        let cookies = answer.headers().get_all(SET_COOKIE).iter();
        for cookie in cookies.filter_map(|it| it.to_str().ok()) {
            let pair = cookie.split(';').next().unwrap_or_default();
            self.cookie = (!pair.ends_with('=')).then(|| pair.to_owned());
        }
        Some(answer)
    }

    async fn post(&mut self, path: &str, form: &[(&str, &str)]) -> Response {
        let answer = self.try_post(path, form).await;
        answer.expect("the service answers")
    }

    async fn set_password(&mut self, code: &str, password: &str) -> Option<Response> {
        let form = [
            ("token", code),
            ("password", password),
            ("repeat", password),
        ];
        self.try_post("/password", &form).await
    }

    async fn log_in(&mut self, name: &str, password: &str) -> StatusCode {
        let form = [("name", name), ("password", password), ("returnTo", "/x")];
        self.post("/login", &form).await.status()
    }

    async fn who(&self) -> Option<Value> {
        let answer = self.get("/api/v1/users/me/access").await;
        match answer.status() {
            StatusCode::OK => Some(answer.json().await.expect("JSON")),
            StatusCode::UNAUTHORIZED => None,
            status => panic!("{status}"),
        }
    }
}

/// The texts of these tests need no escapes but for spaces.
fn form_body(form: &[(&str, &str)]) -> String {
    let fields = form
        .iter()
        .map(|(name, value)| format!("{name}={}", value.replace(' ', "+").replace('/', "%2F")));
    fields.collect::<Vec<_>>().join("&")
}

async fn start(plans: Option<&Path>) -> Service {
    let mut builder = Service::builder().env("WORKSPACE_AUTH__MODE", "accounts");
    if let Some(plans) = plans {
        builder = builder.env("CRASH_POINTS_DIR", &plans.display().to_string());
    }
    builder.start().await
}

/// The code of the last link to a password in the text.
fn code_in(text: &str) -> String {
    code_of(text, "/password#")
}

/// The code of the last link with this path in the text.
fn code_of(text: &str, path: &str) -> String {
    let (_, after) = text.rsplit_once(path).expect("a link");
    let code = after.split_whitespace().next().unwrap_or_default();
    code.to_owned()
}

fn stdout_of(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn the_first_link_leads_to_a_session() {
    let mut service = start(None).await;
    let mut browser = Browser::new(&service);
    let code = code_in(&service.log());
    assert_eq!(browser.get("/password").await.status(), StatusCode::OK);
    let set = browser
        .set_password(&code, PASSWORD)
        .await
        .expect("an answer");
    assert_eq!(set.status(), StatusCode::SEE_OTHER);
    assert_eq!(set.headers()[LOCATION], "/");
    let who = browser.who().await.expect("a session");
    assert_eq!(
        (&who["user_id"], &who["role"]),
        (&json!("admin"), &json!("admin"))
    );

    // The link is used, and the session survives the service.
    let mut other = Browser::new(&service);
    let again = other.set_password(&code, "another password").await;
    assert_eq!(again.expect("an answer").status(), StatusCode::UNAUTHORIZED);
    service.restart().await;
    assert!(browser.who().await.is_some());
    let log = service.log();
    let (_, last) = log.rsplit_once("---- start ----").expect("a start");
    assert!(!last.contains("/password#"), "{last}");

    let logout = browser.post("/logout", &[]).await;
    assert_eq!(logout.status(), StatusCode::SEE_OTHER);
    assert!(browser.cookie.is_none() && browser.who().await.is_none());
    assert_eq!(
        browser.log_in("admin", "wrong").await,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(
        browser.log_in("admin", PASSWORD).await,
        StatusCode::SEE_OTHER
    );
    let made = browser.request(Method::POST, "/api/v1/keys").send().await;
    assert_eq!(made.expect("an answer").status(), StatusCode::CREATED);
    let foreign = browser
        .request(Method::POST, "/api/v1/keys")
        .header("Sec-Fetch-Site", HeaderValue::from_static("cross-site"));
    let foreign = foreign.send().await.expect("an answer");
    assert_eq!(foreign.status(), StatusCode::FORBIDDEN);

    let key = service.admin();
    let entries = key.get("/api/v1/audit?limit=100").await.ok();
    let text = entries.to_string();
    for said in [
        "login user:admin",
        "logout user:admin",
        "password set by link",
        "one-time link",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    for secret in [PASSWORD, code.as_str(), "$argon2"] {
        assert!(
            !text.contains(secret) && !service.log().contains(&format!("{secret} ")),
            "{secret}"
        );
    }
}

/// The command line invites a user, and the deletion of the user ends sessions of the running service.
#[tokio::test]
async fn the_command_line_invites_and_deletes() {
    let service = start(None).await;
    let invited = stdout_of(&service.run(&["users", "link", "ada", "--create"]));
    let mut ada = Browser::new(&service);
    let set = ada
        .set_password(&code_in(&invited), "adas own password")
        .await;
    assert_eq!(set.expect("an answer").status(), StatusCode::SEE_OTHER);
    assert_eq!(ada.who().await.expect("a session")["role"], "user");
    let unknown = service.run(&["users", "link", "stranger"]);
    assert!(!unknown.status.success());
    stdout_of(&service.run(&["users", "delete", "ada", "--yes"]));
    wait_for(
        "the end of the deleted user's session",
        std::time::Duration::from_secs(60),
        || async { ada.who().await.is_none().then_some(()) },
    )
    .await;
}

/// The service dies at each of its next commits while a link is used. Afterwards the link works, or the password does.
#[tokio::test]
async fn a_kill_while_a_link_is_used_locks_no_user_out() {
    let plans = tempfile::tempdir().expect("a temporary directory can be made");
    let mut service = start(Some(plans.path())).await;
    let mut kills = 0;
    for (count, place) in ["before", "after"].into_iter().enumerate() {
        for number in 1..=2 {
            let link = stdout_of(&service.run(&["users", "link", "admin"]));
            let code = code_in(&link);
            let plan = format!("{count}{number}\n{number}\n{place} {COMMIT}\n");
            std::fs::write(plans.path().join("plan"), plan).expect("the directory is writable");
            let password = format!("the password {place} {number}");
            let mut browser = Browser::new(&service);
            let answer = browser.set_password(&code, &password).await;
            std::fs::remove_file(plans.path().join("plan")).expect("there is a plan");
            kills += usize::from(answer.is_none());
            service.restart().await;
            let logged_in = browser.log_in("admin", &password).await;
            if logged_in != StatusCode::SEE_OTHER {
                let set = browser.set_password(&code, &password).await;
                assert_eq!(
                    set.expect("an answer").status(),
                    StatusCode::SEE_OTHER,
                    "{place} {number}"
                );
            }
            assert!(browser.who().await.is_some(), "{place} {number}");
        }
    }
    assert_eq!(kills, 4, "each plan kills the service");
}

#[tokio::test]
async fn sessions_need_an_encrypted_address() {
    let mut service = start(None).await;
    service.set_variable("WORKSPACE_HTTP__PUBLIC_URL", "http://agents.example/");
    let ended = service.try_restart().await;
    assert!(ended.is_some_and(|status| !status.success()));
    assert!(
        service
            .log()
            .contains("passwords and sessions would cross the network")
    );
}
