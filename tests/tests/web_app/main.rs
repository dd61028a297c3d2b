//! The web application in a real browser: the real binary, the real package and agent server, and a headless Chromium that
//! types and clicks. Only the model is scripted. `WEB_APP_PICTURES=DIR` saves screenshots.

mod people;

use std::path::PathBuf;
use std::time::Duration;

use acceptance::agent_server::{variable_of, web_application};
use acceptance::browser::Browser;
use acceptance::wait::{wait_for, wait_until};
use acceptance::{Builder, Client, Sandboxing, ScriptedLlm, Service, Version};

const INPUT: &str = "[data-testid=chat-input]";
const MODEL: &str = "openai/scripted";
const MODEL_KEY: &str = "sk-scripted";
/// The service sees the page's request at once; a machine that builds beside the suite is slow.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// What the page reports although it works, as docs/how-to/use-the-web-application.md says.
const DOCUMENTED_ERRORS: [&str; 5] = [
    // Fonts and icons of other hosts, which the policy blocks.
    "fonts.googleapis.com",
    "img-src",
    // Advice of a library for the developers of the package.
    "reactrouter.com",
    // Advice of Chromium about the dialog that welcomes a new user.
    "Password field is not contained in a form",
    // This service has no automations.
    "/api/automation/",
];

/// A service with the web application and a browser.
struct WebSession {
    llm: ScriptedLlm,
    service: Service,
    user: Client,
    browser: Browser,
}

fn in_mode(service: &mut Service, mode: &str) {
    service.set_variable("WORKSPACE_AUTH__MODE", mode);
}

fn with_web_application(builder: Builder) -> Builder {
    builder
        .env("WORKSPACE_WEB__ENABLED", "auto")
        .env("WORKSPACE_WEB__DIR", &web_application())
}

impl WebSession {
    async fn start(mode: &str) -> Self {
        let sandboxing = Sandboxing::Process;
        let llm = sandboxing.model().await;
        let builder = Service::builder().sandboxing(&sandboxing);
        let builder = with_web_application(builder.agent_server(Version::V1_58_0));
        // The first start makes the key with which the suite looks at the same user's data.
        let mut service = builder.start().await;
        let user = service.admin();
        in_mode(&mut service, mode);
        service.restart().await;
        wait_until("the web application", START_TIMEOUT, || {
            service.log().contains("the web application is served")
        })
        .await;
        Self {
            llm,
            service,
            user,
            browser: Browser::start().await,
        }
    }

    async fn use_model(&self) {
        self.user
            .use_model(MODEL, &self.llm.base_url(), MODEL_KEY)
            .await;
    }

    async fn open(&mut self, path: &str) {
        let url = format!("{}{path}", self.service.url());
        self.browser.open(&url).await;
    }

    async fn save_screenshot(&mut self, name: &str) {
        if let Some(folder) = variable_of("WEB_APP_PICTURES").map(PathBuf::from) {
            let file = folder.join(format!("{name}.png"));
            self.browser.save_screenshot(&file).await;
        }
    }

    /// Asserts that the page reported documented errors only, and reached no other host.
    async fn assert_no_errors(&mut self) {
        let seen = self.browser.page_state().await;
        let ours = self.service.url();
        let is_local = |url: &str| ["data:", "blob:"].iter().any(|it| url.starts_with(it));
        let foreign = seen.responses.iter();
        let foreign: Vec<_> = foreign
            .filter(|url| !url.starts_with(&ours) && !is_local(url))
            .collect();
        assert!(
            foreign.is_empty() && !seen.responses.is_empty(),
            "the page reaches other hosts, or nothing: {foreign:#?}"
        );
        let is_documented = |error: &&String| DOCUMENTED_ERRORS.iter().any(|it| error.contains(it));
        let unexpected: Vec<_> = seen.errors.iter().filter(|it| !is_documented(it)).collect();
        assert!(
            unexpected.is_empty(),
            "unexpected errors on the page: {unexpected:#?}"
        );
    }

    /// Asserts that the browser keeps no credential.
    async fn assert_nothing_kept(&mut self, secrets: &[&str]) {
        let kept = "JSON.stringify({...localStorage}) + JSON.stringify({...sessionStorage}) + document.cookie";
        let kept = self.browser.eval(kept).await.to_string();
        for secret in secrets {
            assert!(!secret.is_empty() && !kept.contains(secret), "{kept}");
        }
    }
}

/// Holds a conversation, from the home page that is open.
async fn converse(session: &mut WebSession) {
    let input = format!("document.querySelector('{INPUT}')");
    session.browser.wait_until("the home page", &input).await;
    session
        .browser
        .wait_for_text("No conversations found")
        .await;
    session.save_screenshot("home").await;
    session.assert_no_errors().await;

    session
        .browser
        .type_into(INPUT, "RUN: echo one > first.txt")
        .await;
    session.browser.press_key("Enter", 13).await;
    let is_open = "location.pathname.startsWith('/conversations/')";
    session
        .browser
        .wait_until("the conversation's page", is_open)
        .await;
    session.browser.wait_for_text("Done as scripted.").await;
    session.save_screenshot("conversation").await;
    let user = session.user.clone();
    let conversation = wait_for("the conversation", START_TIMEOUT, || async {
        user.conversations().await.pop()
    })
    .await;
    session
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    assert!(session.llm.calls() > 0);
    let key = conversation.session_api_key.as_deref().unwrap_or_default();
    let keys = [key, user.key(), MODEL_KEY];
    session.assert_nothing_kept(&keys).await;
    session.assert_no_errors().await;

    // The load of a page of the router, and a message over the socket.
    let path = format!("/conversations/{}", conversation.id);
    session.open(&path).await;
    session.browser.wait_for_text("RUN: echo one").await;
    session.browser.wait_for_text("Done as scripted.").await;
    session.browser.wait_for_socket(true).await;
    session
        .browser
        .type_into(INPUT, "RUN: echo two > second.txt")
        .await;
    session.browser.press_key("Enter", 13).await;
    let twice = "document.body.innerText.split('Done as scripted.').length === 3";
    session.browser.wait_until("the second answer", twice).await;
    session.save_screenshot("second-message").await;
    session.assert_no_errors().await;
}

#[tokio::test]
async fn a_conversation_runs_in_the_browser() {
    let mut session = WebSession::start("open").await;
    session.use_model().await;
    session.open("/").await;
    converse(&mut session).await;
}

const PASSWORD: &str = "correct horse battery";

/// The link that the service has printed for its first administrator.
fn first_link(service: &Service) -> String {
    let log = service.log();
    let link = log.lines().rev().find(|line| line.contains("/password#"));
    let link = link.unwrap_or_else(|| panic!("no link in {log}"));
    link.trim().to_owned()
}

/// The title that the scripted model gives a conversation.
const TITLE: &str = "Scripted run";
const SUBMIT: &str = "document.querySelector('form button')";

/// Fills in the page of a link and sends it, until the page shows the effect.
async fn set_password(browser: &mut Browser, effect: &str) {
    browser.type_into("#password", PASSWORD).await;
    browser.type_into("#repeat", PASSWORD).await;
    browser.click(SUBMIT, effect).await;
}

/// Sets the model in the dialog that welcomes a new user.
async fn enter_model(session: &mut WebSession) {
    let by_id = |id: &str| format!("document.querySelector('[data-testid={id}]')");
    let browser = &mut session.browser;
    let (first, second) = (
        by_id("onboarding-agent-next"),
        by_id("sdk-section-advanced-toggle"),
    );
    // The steps stand side by side, and move.
    let moved = format!("{second}.getBoundingClientRect().x < innerWidth / 2");
    browser.press_once(&first, &moved).await;
    let custom = by_id("llm-custom-model-input");
    browser.press_once(&second, &custom).await;
    let url = session.llm.base_url();
    for (field, value) in [
        ("llm-custom-model-input", MODEL),
        ("base-url-input", url.as_str()),
        ("llm-api-key-input", MODEL_KEY),
    ] {
        // What the dialog suggests is replaced.
        let selected = format!("{}.select()", by_id(field));
        browser.eval(&selected).await;
        let field = format!("[data-testid={field}]");
        browser.type_into(&field, value).await;
    }
    let closed = format!("!{}", by_id("onboarding-modal"));
    let next = by_id("onboarding-llm-next");
    browser.press_once(&next, &closed).await;
}

#[tokio::test]
async fn a_person_sets_a_password_converses_and_signs_in_again() {
    let mut session = WebSession::start("accounts").await;
    // Without a session every page is the login page, which returns there.
    session.open("/conversations?x=1").await;
    session.browser.wait_for_text("Sign in").await;
    let returns = "new URLSearchParams(location.search).get('returnTo') === '/conversations?x=1'";
    session.browser.wait_until("the way back", returns).await;

    let link = first_link(&session.service);
    session.browser.open(&link).await;
    session.browser.wait_for_text("Set a password").await;
    let hidden = "document.getElementById('token-field').hidden && !location.hash";
    session.browser.wait_until("the code's field", hidden).await;
    session.save_screenshot("password").await;
    set_password(&mut session.browser, "location.pathname === '/'").await;
    enter_model(&mut session).await;
    converse(&mut session).await;
    session.assert_nothing_kept(&[PASSWORD]).await;

    // The link is used up.
    session.browser.open(&link).await;
    session.browser.wait_for_text("Set a password").await;
    let refused = "document.body.innerText.includes('This link is not valid')";
    set_password(&mut session.browser, refused).await;

    // From then on every page is the login page.
    session.open("/settings").await;
    let out = "document.querySelector('.who button')";
    let login = "location.pathname === '/login'";
    session.browser.click(out, login).await;
    session.open("/conversations").await;
    let returns = "new URLSearchParams(location.search).get('returnTo') === '/conversations'";
    session.browser.wait_until("the way back", returns).await;
    session.save_screenshot("login").await;
    session.browser.type_into("#name", "admin").await;
    session
        .browser
        .type_into("#password", "a wrong password")
        .await;
    let refused = "document.body.innerText.includes('The name or the password is wrong')";
    session.browser.click(SUBMIT, refused).await;
    session.browser.type_into("#password", PASSWORD).await;
    let there = "location.pathname === '/conversations'";
    session.browser.click(SUBMIT, there).await;
    session.browser.wait_for_text(TITLE).await;
}

#[tokio::test]
async fn pages_of_the_router_load_and_pages_of_the_host_do_not() {
    let mut session = WebSession::start("open").await;
    for (path, text) in [
        ("/settings/llm", "Available Profiles"),
        ("/settings/agents", "Add agent profile"),
        ("/settings/secrets", "Named value"),
        ("/settings/condenser", "Summarize"),
        ("/settings/verification", "Verification"),
        ("/settings/agent-context", "Agent Context"),
        ("/settings/app", "Language"),
        ("/conversations", "Let's Start Building!"),
        ("/plugins", "No plugins found"),
        ("/apps", "Apps for Agent Canvas"),
        ("/launch", "No plugins were specified"),
        ("/mcp", "MCP"),
        ("/skills", "Skills"),
    ] {
        session.open(path).await;
        session.browser.wait_for_text(text).await;
        session.save_screenshot(&path.replace('/', "_")).await;
    }
    session.assert_no_errors().await;
    // The pages of the service, which link to those of the application and back.
    session.open("/settings?org=x").await;
    session.browser.wait_for_text("API keys").await;
    let models =
        "[...document.querySelectorAll('nav.side a')].find(it => it.textContent === 'Models')";
    let there = "document.body.innerText.includes('Available Profiles')";
    session.browser.click(models, there).await;
    session.open("/settings/skills").await;
    session.browser.wait_for_text("A skill is knowledge").await;
    session.browser.page_state().await;
    session.open("/invite/x").await;
    session.browser.wait_for_text("No such page").await;
}

#[tokio::test]
async fn a_service_without_the_package_works_and_says_what_to_do() {
    let mut service = Service::builder()
        .env("WORKSPACE_AUTH__MODE", "api_key")
        .env("WORKSPACE_WEB__ENABLED", "auto")
        // Nothing listens there.
        .env("WORKSPACE_WEB__REGISTRY", "http://127.0.0.1:9/")
        .start()
        .await;
    let user = service.admin();
    assert_eq!(
        user.get("/").await.status,
        404,
        "keys cannot be entered there"
    );
    assert!(!service.log().contains("the web application"));
    in_mode(&mut service, "open");
    service.restart().await;
    let mut browser = Browser::start().await;
    browser.open(&format!("{}/skills", service.url())).await;
    browser.wait_for_text("is not available").await;
    let text = browser.eval("document.body.innerText").await.to_string();
    assert!(text.contains("web install --from FILE"), "{text}");
    assert!(!text.contains("127.0.0.1:9"), "{text}");
    let log = service.log();
    for part in [
        "web install --from FILE",
        "WORKSPACE_WEB__REGISTRY",
        "cannot connect",
    ] {
        assert!(log.contains(part), "{part} in {log}");
    }
    assert_eq!(user.get("/api/v1/users/me").await.status, 200);
    assert_eq!(user.get("/ready").await.status, 200);
}

#[tokio::test]
async fn another_archive_is_not_installed() {
    let service = Service::builder().start().await;
    let file = service.data_dir().join("other.tgz");
    std::fs::write(&file, "no archive").unwrap();
    let output = service.run(&["web", "install", "--from", file.to_str().unwrap()]);
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("SHA-512 digest"), "{error}");
}
