//! The web console in a real browser: the real binary, the stub in its sandboxes, and a headless Chromium that clicks.
//!
//! One browser and one service go through all stories, one after another: starting them is most of the cost.
//! `CONSOLE_PICTURES=DIR` keeps pictures of the pages.

mod browser;
mod stories;

use std::path::PathBuf;

use acceptance::agent_server::variable_of;
use acceptance::proxy::wire::Authority;
use acceptance::{Client, World};
use serde_json::{Value, json};

use crate::browser::Browser;

/// A title that would be a script if any text became markup.
pub(crate) const HOSTILE: &str =
    r#"<img src=x onerror="window.hit=1"><script>window.hit=1</script>"#;
/// A title that is none of that.
pub(crate) const TITLE: &str = "Tidy up the parser";
/// Below which path the console is seen.
const BELOW: &str = "/agents";

/// A service with some work done, and a browser.
pub(crate) struct ConsoleSession {
    pub(crate) world: World,
    pub(crate) bob: Client,
    pub(crate) browser: Browser,
    pictures: Option<PathBuf>,
}

impl ConsoleSession {
    async fn set_up() -> Self {
        let mut world = World::with("").await;
        // Known only now: its port is in it.
        let public = format!("{}{BELOW}", world.service.url());
        world.service.set("WORKSPACE_HTTP__PUBLIC_URL", &public);
        world.service.restart().await;
        let (bob, browser) = (world.service.user("bob"), Browser::start(&trusted()).await);
        let pictures = variable_of("CONSOLE_PICTURES").map(PathBuf::from);
        Self {
            world,
            bob,
            browser,
            pictures,
        }
    }

    /// An address below the public one.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{BELOW}{path}", self.world.service.url())
    }

    /// Goes to another view of the page that is open.
    pub(crate) async fn view(&mut self, name: &str) {
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

    /// Keeps a picture, if somebody wants it.
    pub(crate) async fn picture(&mut self, name: &str) {
        if let Some(folder) = self.pictures.clone() {
            self.browser
                .picture(&folder.join(format!("{name}.png")))
                .await;
        }
    }

    pub(crate) async fn sign_in(&mut self, key: &str) {
        self.browser.shows("Sign in").await;
        self.browser.write("#key", key).await;
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

    /// Everything that the page asked for was ours, and nothing went wrong but what is `expected`.
    pub(crate) async fn assert_quiet(&mut self, expected: &[&str]) {
        let seen = self.browser.seen().await;
        let ours = self.world.service.url();
        let foreign: Vec<_> = seen
            .requests
            .iter()
            .filter(|url| !url.starts_with(&ours) && *url != "about:blank")
            // Pictures in style sheets.
            .filter(|url| !url.starts_with("data:image/"))
            .collect();
        assert!(
            foreign.is_empty() && !seen.requests.is_empty(),
            "{foreign:?}"
        );
        let key = self.world.user.key();
        assert!(
            seen.requests.iter().all(|url| !url.contains(key)),
            "a key in an address"
        );
        let unexpected: Vec<_> = seen
            .complaints
            .iter()
            .filter(|it| !expected.iter().any(|expected| it.contains(expected)))
            .collect();
        assert!(unexpected.is_empty(), "{unexpected:#?}");
    }
}

/// Tells a browser to trust the key of the certificate that a proxy in front has, and no other one of its own making.
fn trusted() -> String {
    let keys = Authority::of_this_process().key_digest();
    format!("--ignore-certificate-errors-spki-list={keys}")
}

/// A start with a title.
fn titled(title: &str) -> Value {
    let hello = json!({"role": "user", "content": acceptance::client::text("hello"), "run": true});
    json!({"title": title, "initial_message": hello})
}

#[tokio::test]
async fn an_operator_sees_and_does_everything_in_the_console() {
    let mut desk = ConsoleSession::set_up().await;
    stories::signing_in(&mut desk).await;
    let user = desk.world.user.clone();
    let (good, hostile) = (
        user.start(&titled(TITLE)).await,
        user.start(&titled(HOSTILE)).await,
    );
    let conversation = user.ready(&good).await;
    user.ready(&hostile).await;
    desk.world.stub.set("exit-at-start");
    let failed = user.start(&titled("Never to be")).await;
    let failed = user.ended(&failed).await;
    desk.world.stub.set("");
    stories::conversations(&mut desk, &failed).await;
    stories::logs(&mut desk, &conversation).await;
    stories::pausing(&mut desk, &conversation.sandbox_id).await;
    stories::keys(&mut desk).await;
    stories::administering(&mut desk).await;
    stories::charts(&mut desk).await;
    stories::small_and_dark(&mut desk).await;
    desk.assert_quiet(&[]).await;
    stories::documentation(&mut desk).await;
    stories::a_plain_user(&mut desk).await;
    stories::a_revoked_key(&mut desk).await;
    assert_eq!(desk.browser.eval("typeof window.hit").await, "undefined");
}
