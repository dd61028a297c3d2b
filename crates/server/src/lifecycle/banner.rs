//! The start-up message for a person at the terminal.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::net::SocketAddr;

use http_api::HttpState;
use secrecy::ExposeSecret as _;

use crate::compose::{self, OpenedBackend};
use crate::config::{AuthModeSetting, Config, LogFormat, without_password};
use crate::lifecycle::bootstrap::FirstKey;
use crate::lifecycle::first_link::FirstLink;

/// Logs how the service runs; with the text format also prints the banner.
pub(crate) fn announce(
    config: &Config,
    (bound, http): (SocketAddr, &HttpState),
    sandboxes: &OpenedBackend,
    (first_key, first_link): (&FirstKey, Option<&FirstLink>),
) {
    let public_url = config.http.public_url(bound);
    let data_dir = config.data_dir.display();
    let store = without_password(config.storage.url.expose_secret());
    let (backend, reason) = (sandboxes.ports.backend.name(), &sandboxes.reason);
    if config.log.format == LogFormat::Text {
        // The banner has the rest.
        tracing::info!(address = %bound, sandbox.backend = backend, "listening");
        let base = public_url.as_str().trim_end_matches('/');
        let lines = [
            ("URL", base.to_owned()),
            ("documentation", format!("{base}/docs")),
            ("data directory", data_dir.to_string()),
            ("store", store),
            ("sandboxes", format!("{backend} ({reason})")),
            ("isolation", describe_isolation(sandboxes)),
            ("API key", describe_key(first_key)),
        ];
        let mut text = format!("\n  agent-workspace {}\n\n", env!("CARGO_PKG_VERSION"));
        for (name, value) in lines {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {name:<14}  {value}");
        }
        if let Some(link) = first_link {
            let (user, link) = (&link.user, link.text(&public_url));
            let next = format!(
                "\n  Next: set the password of `{user}` within a day. The link works once:\n  {link}\n"
            );
            text.push_str(&next);
        } else if config.auth.mode == AuthModeSetting::Accounts || http.web_app().is_some() {
            let next = format!("\n  Next: open {base}/ in a browser.\n");
            text.push_str(&next);
        } else if let FirstKey::Generated(_) = first_key {
            let next = format!("\n  Next: open {base}/console/ and sign in with that key.\n");
            text.push_str(&next);
        }
        crate::to_stderr(&text);
    } else {
        tracing::info!(
            address = %bound,
            %public_url,
            %data_dir,
            store,
            sandbox.backend = backend,
            sandbox.why = reason,
            sandbox.isolation = compose::isolation(&sandboxes.features),
            "listening"
        );
    }
    warn_about_sign_in(config, first_key, first_link);
}

/// Logs why people or programs cannot sign in.
fn warn_about_sign_in(config: &Config, first_key: &FirstKey, first_link: Option<&FirstLink>) {
    if let Some(link) = first_link.filter(|_| config.log.format != LogFormat::Text) {
        // The log must not contain the link.
        tracing::warn!(
            user = %link.user,
            "no administrator has a password: make a link that sets one with `agent-workspace users link {}`",
            link.user
        );
    }
    if let Some(obstacle) = &config.auth.without_sign_in {
        tracing::warn!(
            obstacle,
            "people cannot sign in, and requests need API keys: remove the obstacle, or set auth.mode to `api_key`"
        );
    }
    if *first_key == FirstKey::Missing {
        tracing::warn!(
            "there is no valid API key: create one with `agent-workspace keys create --user admin`"
        );
    }
}

/// Red on a terminal if there is none.
fn describe_isolation(sandboxes: &OpenedBackend) -> String {
    match compose::isolation(&sandboxes.features) {
        "none" => {
            let text =
                "none: sandboxes can do what this account can; run only agents that you trust";
            if std::io::stderr().is_terminal() {
                format!("\x1b[1;31m{text}\x1b[0m")
            } else {
                text.to_owned()
            }
        }
        isolation => isolation.to_owned(),
    }
}

fn describe_key(first_key: &FirstKey) -> String {
    let text = match first_key {
        FirstKey::NotNeeded => "not needed: every request acts as one user",
        FirstKey::Configured => "the configured one, for user `admin`",
        FirstKey::Generated(path) => return format!("in {} (user `admin`)", path.display()),
        FirstKey::Earlier => {
            "created at an earlier start; `agent-workspace keys list` lists all keys"
        }
        FirstKey::Missing => "none! Create one with `agent-workspace keys create --user admin`",
    };
    text.to_owned()
}
