//! The web console in a real browser: the real binary, the stub in its sandboxes, and a headless Chromium that clicks.
//!
//! All scenarios share one browser and one service, because starting them takes most of the time.
//! `CONSOLE_PICTURES=DIR` saves screenshots.

mod accessibility;
mod accounts;
mod administration;
mod conversation;
mod modules;
mod scenarios;

use std::path::PathBuf;

use acceptance::agent_server::variable_of;
use acceptance::browser::Browser;
use acceptance::{Client, World};
use serde_json::{Value, json};

/// A title that runs a script if the console inserts it as markup.
pub(crate) const HOSTILE_TITLE: &str =
    r#"<img src=x onerror="window.hit=1"><script>window.hit=1</script>"#;
pub(crate) const PLAIN_TITLE: &str = "Tidy up the parser";
/// The path of the public URL.
const PUBLIC_PATH: &str = "/agents";

/// A service, its users and a browser.
pub(crate) struct ConsoleSession {
    pub(crate) world: World,
    pub(crate) bob: Client,
    pub(crate) browser: Browser,
    pictures: Option<PathBuf>,
}

impl ConsoleSession {
    async fn set_up() -> Self {
        let mut world = World::with_faults("").await;
        // The URL contains the port, which is known only after the first start.
        let public = format!("{}{PUBLIC_PATH}", world.service.url());
        world
            .service
            .set_variable("WORKSPACE_HTTP__PUBLIC_URL", &public);
        // People enter a key. The last scenarios sign in instead.
        world
            .service
            .set_variable("WORKSPACE_AUTH__MODE", "api_key");
        world
            .service
            .set_variable("WORKSPACE_EGRESS__POLICY", "allow_list");
        world
            .service
            .set_variable("WORKSPACE_EGRESS__ALLOW", "public");
        world.service.restart().await;
        let (bob, browser) = (world.service.user("bob"), Browser::start().await);
        let pictures = variable_of("CONSOLE_PICTURES").map(PathBuf::from);
        Self {
            world,
            bob,
            browser,
            pictures,
        }
    }

    /// The URL of a path below the public URL.
    pub(crate) fn url_of(&self, path: &str) -> String {
        format!("{}{PUBLIC_PATH}{path}", self.world.service.url())
    }

    /// Opens another view of the console.
    pub(crate) async fn open_view(&mut self, name: &str) {
        let link = format!(
            "[...document.querySelectorAll('nav a')].find(it => it.textContent === {})",
            json!(name)
        );
        let there = format!(
            "document.querySelector('nav a[aria-current]')?.textContent === {}",
            json!(name)
        );
        self.browser.click(&link, &there).await;
    }

    /// Opens a section of the settings.
    pub(crate) async fn open_section(&mut self, name: &str) {
        let link = format!(
            "[...document.querySelectorAll('nav.side a')].find(it => it.textContent === {})",
            json!(name)
        );
        let there = format!(
            "document.querySelector('h1').textContent === {}",
            json!(name)
        );
        self.browser.click(&link, &there).await;
    }

    /// Saves a screenshot if `CONSOLE_PICTURES` is set.
    pub(crate) async fn save_screenshot(&mut self, name: &str) {
        if let Some(folder) = self.pictures.clone() {
            self.browser
                .save_screenshot(&folder.join(format!("{name}.png")))
                .await;
        }
    }

    pub(crate) async fn sign_in(&mut self, key: &str) {
        self.browser.wait_for_text("Sign in").await;
        self.browser.type_into("#key", key).await;
        let submit = "document.querySelector('form.sign-in button')";
        let signed_in = "document.querySelector('nav a[aria-current]')";
        self.browser.click(submit, signed_in).await;
    }

    pub(crate) async fn sign_out(&mut self) {
        let out = "document.querySelector('.who button')";
        self.browser
            .click(out, "document.querySelector('form.sign-in')")
            .await;
    }

    /// Asserts that the page called this service only, and that it reported no error but the `expected` ones.
    pub(crate) async fn assert_no_errors(&mut self, expected: &[&str]) {
        let seen = self.browser.page_state().await;
        let ours = self.world.service.url();
        let foreign: Vec<_> = seen
            .requests
            .iter()
            .filter(|url| !url.starts_with(&ours) && *url != "about:blank")
            // Images in style sheets.
            .filter(|url| !url.starts_with("data:image/"))
            .collect();
        assert!(
            foreign.is_empty() && !seen.requests.is_empty(),
            "the page calls other hosts, or nothing: {foreign:?}"
        );
        let key = self.world.user.key();
        assert!(
            seen.requests.iter().all(|url| !url.contains(key)),
            "a requested URL contains the API key"
        );
        let unexpected: Vec<_> = seen
            .errors
            .iter()
            .filter(|it| !expected.iter().any(|expected| it.contains(expected)))
            .collect();
        assert!(
            unexpected.is_empty(),
            "unexpected errors on the page: {unexpected:#?}"
        );
    }
}

/// The request that starts a conversation with a title.
fn start_request(title: &str) -> Value {
    let hello = json!({"role": "user", "content": acceptance::client::text("hello"), "run": true});
    json!({"title": title, "initial_message": hello})
}

#[tokio::test]
async fn console_scenarios_work_in_a_browser() {
    let mut session = ConsoleSession::set_up().await;
    scenarios::sign_in_with_keys(&mut session).await;
    modules::understand_texts(&mut session).await;
    let user = session.world.user.clone();
    let (good, hostile) = (
        user.start(&start_request(PLAIN_TITLE)).await,
        user.start(&start_request(HOSTILE_TITLE)).await,
    );
    let conversation = user.wait_until_ready(&good).await;
    user.wait_until_ready(&hostile).await;
    session.world.stub.set_faults("exit-at-start");
    let failed = user.start(&start_request("Never to be")).await;
    let failed = user.wait_for_end(&failed).await;
    session.world.stub.set_faults("");
    scenarios::show_conversations(&mut session, &failed).await;
    scenarios::follow_logs(&mut session, &conversation).await;
    conversation::read_and_answer(&mut session, &conversation).await;
    conversation::say_why_it_failed(&mut session, &conversation).await;
    scenarios::pause_and_resume(&mut session, &conversation.sandbox_id).await;
    administration::create_and_revoke_key(&mut session).await;
    administration::show_administration(&mut session).await;
    administration::show_charts(&mut session).await;
    scenarios::limit_new_sandboxes(&mut session).await;
    administration::fit_a_small_dark_screen(&mut session).await;
    session.assert_no_errors(&[]).await;
    administration::use_the_documentation(&mut session).await;
    administration::show_a_user_without_administration(&mut session).await;
    administration::end_the_session_of_a_revoked_key(&mut session).await;
    accounts::sign_in_by_link(&mut session).await;
    accounts::change_the_password_and_end_sessions(&mut session).await;
    accounts::create_and_revoke_a_key(&mut session).await;
    accounts::set_a_git_token(&mut session).await;
    accounts::keep_a_secret_outside(&mut session).await;
    accounts::turn_a_skill_off(&mut session).await;
    accounts::invite_a_person(&mut session).await;
    accounts::use_the_console_with_the_session(&mut session).await;
    assert_eq!(session.browser.eval("typeof window.hit").await, "undefined");
}
