//! Signing in to the real binary at a real identity provider.

mod provider;

use std::time::Duration;

use acceptance::Service;
use acceptance::wait::wait_for;
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value, json};

use self::provider::{Provider, sign_in};

const SECRET: &str = "canary secret & more";
const START: &str = "/oauth/corp/login?returnTo=%2Fx";
const WAIT_TIMEOUT: Duration = Duration::from_secs(180);

/// A browser at the service. It keeps cookies, and follows no redirects.
struct Browser {
    http: Client,
    home: String,
    cookies: std::collections::BTreeMap<String, String>,
}

impl Browser {
    fn new(service: &Service) -> Self {
        let http = Client::builder().redirect(Policy::none()).build();
        Self {
            http: http.expect("a client can be built"),
            home: format!("http://{}", service.address()),
            cookies: std::collections::BTreeMap::new(),
        }
    }

    async fn send(&mut self, method: Method, url: &str, site: &str) -> Response {
        let jar: Vec<String> = self
            .cookies
            .iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        let url = if url.starts_with('/') {
            format!("{}{url}", self.home)
        } else {
            url.to_owned()
        };
        let request = self
            .http
            .request(method, url)
            .header(COOKIE, jar.join("; "))
            .header("Sec-Fetch-Site", site);
        let answer = request.send().await.expect("the service answers");
        for cookie in answer.headers().get_all(SET_COOKIE) {
            let cookie = cookie.to_str().expect("text");
            assert!(
                cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"),
                "{cookie}"
            );
            let pair = cookie.split(';').next().and_then(|it| it.split_once('='));
            match pair.expect("a pair") {
                (name, "") => self.cookies.remove(name),
                (name, value) => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        answer
    }

    async fn get(&mut self, url: &str) -> Response {
        self.send(Method::GET, url, "same-origin").await
    }

    /// The address at the provider, once it answers.
    async fn start(&mut self, path: &str) -> Option<String> {
        let answer = self.get(path).await;
        let location = answer.headers().get(LOCATION)?;
        Some(location.to_str().expect("text").to_owned())
    }

    /// The address at which the provider sends this person back.
    async fn visit_provider(&mut self, path: &str, person: &str) -> String {
        let start = self.start(path).await.expect("the provider answers");
        sign_in(&start, person, &self.home).await
    }

    /// Comes back from the provider, as browsers do.
    async fn come_back(&mut self, url: &str) -> StatusCode {
        self.send(Method::GET, url, "cross-site").await.status()
    }

    async fn log_in(&mut self, person: &str) -> StatusCode {
        let url = self.visit_provider(START, person).await;
        self.come_back(&url).await
    }

    async fn json(&mut self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        answer.json().await.expect("JSON")
    }

    async fn who(&mut self) -> (Value, Value) {
        let who = self.json("/api/v1/users/me/access").await;
        (who["user_id"].clone(), who["role"].clone())
    }
}

async fn start_service(port: u16) -> (Service, tempfile::NamedTempFile) {
    let secret = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(secret.path(), SECRET).expect("the file is writable");
    let service = Service::builder()
        .env("WORKSPACE_AUTH__MODE", "accounts")
        .env("WORKSPACE_AUTH__OIDC__0__NAME", "corp")
        .env("WORKSPACE_AUTH__OIDC__0__LABEL", "Corp & Co")
        .env(
            "WORKSPACE_AUTH__OIDC__0__ISSUER",
            &format!("http://127.0.0.1:{port}"),
        )
        .env("WORKSPACE_AUTH__OIDC__0__CLIENT_ID", "workspace")
        .env(
            "WORKSPACE_AUTH__OIDC__0__CLIENT_SECRET_FILE",
            &secret.path().display().to_string(),
        )
        .env("WORKSPACE_AUTH__OIDC__0__SCOPES", "profile,email,groups")
        .env("WORKSPACE_AUTH__OIDC__0__NEW_USERS", "domains")
        .env("WORKSPACE_AUTH__OIDC__0__NEW_USER_DOMAINS", "corp.example")
        .env("WORKSPACE_AUTH__OIDC__0__ADMINISTRATORS", "ops")
        .start()
        .await;
    (service, secret)
}

/// Waits for the provider, whose absence the service remembers for a moment.
async fn wait_for_provider(service: &Service) {
    wait_for("the provider's answer", WAIT_TIMEOUT, || async {
        Browser::new(service).start(START).await
    })
    .await;
}

#[tokio::test]
async fn people_sign_in_at_a_provider() {
    let port = Provider::free_port();
    let (service, _secret) = start_service(port).await;
    let mut ada = Browser::new(&service);
    let page = ada
        .get("/login?returnTo=%2Fx")
        .await
        .text()
        .await
        .expect("a page");
    assert!(
        page.contains("Sign in with Corp &amp; Co") && page.contains(START),
        "{page}"
    );

    // The provider is away. Passwords, keys and everything else work.
    let away = ada.get(START).await;
    assert_eq!(away.status(), StatusCode::SERVICE_UNAVAILABLE);
    let page = away.text().await.expect("a page");
    assert!(
        page.contains("Corp &amp; Co does not answer right now"),
        "{page}"
    );
    let redirect = format!("{}/oauth/corp/callback", ada.home);
    let provider = Provider::start(port, &redirect);
    wait_for_provider(&service).await;

    // The first login creates the user.
    let answer = ada.visit_provider(START, "ada").await;
    assert!(answer.starts_with(&redirect), "{answer}");
    let begun = ada.send(Method::GET, &answer, "cross-site").await;
    assert_eq!(begun.status(), StatusCode::SEE_OTHER);
    assert_eq!(begun.headers()[LOCATION], "/x");
    assert_eq!(ada.who().await, (json!("ada"), json!("user")));
    assert_eq!(ada.cookies.len(), 1, "only the session");

    // The answer works once, and only in the browser that asked.
    assert_eq!(ada.come_back(&answer).await, StatusCode::UNAUTHORIZED);
    let mut thief = Browser::new(&service);
    let stolen = ada.visit_provider(START, "ada").await;
    assert!(thief.start(START).await.is_some());
    assert_eq!(thief.come_back(&stolen).await, StatusCode::UNAUTHORIZED);
    assert_eq!(ada.come_back(&stolen).await, StatusCode::SEE_OTHER);

    // A second login finds the same user.
    let mut again = Browser::new(&service);
    assert_eq!(again.log_in("ada").await, StatusCode::SEE_OTHER);
    assert_eq!(again.who().await.0, json!("ada"));
    let identities = again.json("/api/v1/users/me/identities").await;
    assert_eq!(identities["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(identities["items"][0]["email"], "ada@corp.example");

    // A group makes an administrator. Mallory is of another domain, whatever her name and groups.
    let mut grace = Browser::new(&service);
    assert_eq!(grace.log_in("grace").await, StatusCode::SEE_OTHER);
    assert_eq!(grace.who().await, (json!("grace"), json!("admin")));
    let mut mallory = Browser::new(&service);
    assert_eq!(mallory.log_in("mallory").await, StatusCode::UNAUTHORIZED);
    assert!(mallory.cookies.is_empty(), "{:?}", mallory.cookies);

    check_links(&mut again, &identities).await;
    drop(provider);
    assert_eq!(
        again.who().await.0,
        json!("ada"),
        "sessions do not need the provider"
    );
    check_records(&service, &answer).await;
}

/// The identities of a user who has no password.
async fn check_links(again: &mut Browser, identities: &Value) {
    // The only way to sign in stays. A page of another origin links nothing.
    let id = identities["items"][0]["id"].as_str().expect("an id");
    let path = format!("/api/v1/users/me/identities/{id}");
    let last = again.send(Method::DELETE, &path, "same-origin").await;
    assert_eq!(last.status(), StatusCode::CONFLICT);
    let link = "/oauth/corp/login?link=1&returnTo=%2Fx";
    let foreign = again.send(Method::GET, link, "cross-site").await;
    assert_eq!(foreign.status(), StatusCode::FORBIDDEN);
    let taken = again.visit_provider(link, "grace").await;
    assert_eq!(again.come_back(&taken).await, StatusCode::FORBIDDEN);
    assert_eq!(again.who().await.0, json!("ada"));
}

/// The audit log says who came in and who did not; no record has a secret.
async fn check_records(service: &Service, answer: &str) {
    let audit = service.admin().get("/api/v1/audit?limit=100").await.ok();
    let text = audit.to_string();
    for said in [
        "linked to user:ada new user, role:user",
        "linked to user:grace new user, role:admin",
        "login user:ada",
        "provider:corp",
        "refused",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let code = answer
        .split(['?', '&'])
        .find_map(|it| it.strip_prefix("code="));
    let code = code.expect("a code");
    for secret in [SECRET, code] {
        assert!(
            !text.contains(secret) && !service.log().contains(secret),
            "{secret}"
        );
    }
}
