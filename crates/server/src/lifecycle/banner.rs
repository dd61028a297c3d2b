//! The start-up message for a person at the terminal.

use std::fmt::Write as _;
use std::net::SocketAddr;

use url::Url;

use crate::config::{Config, LogFormat};
use crate::lifecycle::bootstrap::FirstKey;

pub(crate) struct StartupBanner<'a> {
    pub(crate) config: &'a Config,
    pub(crate) bound: SocketAddr,
    pub(crate) public_url: &'a Url,
    pub(crate) store: &'a str,
    pub(crate) backend: &'a str,
    pub(crate) backend_reason: &'a str,
    pub(crate) first_key: &'a FirstKey,
}

impl StartupBanner<'_> {
    /// Logs the facts; with the text format also prints the banner.
    pub(crate) fn announce(&self) {
        if self.config.log.format == LogFormat::Text {
            // The banner has the rest.
            tracing::info!(address = %self.bound, sandbox.backend = self.backend, "listening");
            crate::to_stderr(&self.text());
        } else {
            tracing::info!(
                address = %self.bound,
                public_url = %self.public_url,
                data_dir = %self.config.data_dir.display(),
                store = self.store,
                sandbox.backend = self.backend,
                sandbox.why = self.backend_reason,
                "listening"
            );
        }
        if *self.first_key == FirstKey::Missing {
            tracing::warn!(
                "there is no valid API key: create one with `agent-workspace keys create --user admin`"
            );
        }
    }

    fn text(&self) -> String {
        let base = self.public_url.as_str().trim_end_matches('/');
        let lines = [
            ("URL", base.to_owned()),
            ("documentation", format!("{base}/docs")),
            ("data directory", self.config.data_dir.display().to_string()),
            ("store", self.store.to_owned()),
            (
                "sandboxes",
                format!("{} ({})", self.backend, self.backend_reason),
            ),
            ("API key", self.key()),
        ];
        let mut text = format!("\n  agent-workspace {}\n\n", env!("CARGO_PKG_VERSION"));
        for (name, value) in lines {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {name:<14}  {value}");
        }
        if let FirstKey::Generated(_) = self.first_key {
            let _ = writeln!(
                text,
                "\n  Next: open {base}/console/ and sign in with that key."
            );
        }
        text
    }

    fn key(&self) -> String {
        match self.first_key {
            FirstKey::NotNeeded => "not needed: every request acts as one user".to_owned(),
            FirstKey::Configured => "the configured one, for user `admin`".to_owned(),
            FirstKey::Generated(path) => format!("in {} (user `admin`)", path.display()),
            FirstKey::Earlier => {
                "created at an earlier start; `agent-workspace keys list` lists all keys".to_owned()
            }
            FirstKey::Missing => {
                "none! Create one with `agent-workspace keys create --user admin`".to_owned()
            }
        }
    }
}
