//! The pages about automations: the web application's and the console's.

use acceptance::browser::Browser;
use acceptance::{Client, Service};
use serde_json::json;

use crate::{API, runs_of};

/// Looks at an automation that has run twice, and runs it again. The service must be in open mode.
pub(crate) async fn run_in_the_web_application(
    service: &Service,
    browser: &mut Browser,
    user: &Client,
    automation: &str,
) {
    browser
        .open(&format!("{}/automations", service.url()))
        .await;
    browser.wait_for_text("Successful").await;
    let button = format!("document.querySelector('[data-testid=automation-run-now-{automation}]')");
    browser.wait_until("the button", &button).await;
    let running = "/Pending|Running/.test(document.body.innerText)";
    browser.click(&button, running).await;
    let runs = runs_of(user, automation).await;
    assert_eq!(runs.len(), 3, "{runs:?}");

    browser
        .open(&format!("{}/automations/{automation}", service.url()))
        .await;
    browser.wait_for_text("Activity Log").await;
    let logs = "[...document.querySelectorAll('button')].find(it => (it.getAttribute('aria-label') ?? '').startsWith('View logs'))";
    browser.wait_until("the button for logs", logs).await;
    let shown = "document.body.innerText.includes('System')";
    browser.click(logs, shown).await;
}

/// Looks at the same automation in the console, which shows its runs and its schedule.
pub(crate) async fn look_in_the_console(
    service: &Service,
    browser: &mut Browser,
    user: &Client,
    automation: &str,
) {
    let trigger = json!({"type": "cron", "schedule": "30 6 1 1 *", "timezone": "Asia/Tokyo"});
    let never = json!({"name": "never", "prompt": "nothing", "trigger": trigger});
    let made = user.post(&format!("{API}/preset/prompt"), &never).await;
    assert_eq!(made.status, 201, "{}", made.text);
    browser
        .open(&format!("{}/console/#/automations", service.url()))
        .await;
    browser.wait_for_text("30 6 1 1 * Asia/Tokyo").await;
    browser.wait_for_text("31 Dec").await;
    let link = format!("document.querySelector('a[href=\"#/automations/{automation}\"]')");
    let there = "document.body.innerText.includes('deleted after a run')";
    browser.click(&link, there).await;
    let runs = "document.querySelectorAll('table[role=table] tbody tr').length === 3";
    browser.wait_until("all runs", runs).await;
}
