//! The files of the web console, of the settings pages and of the pages on which people sign in, compiled into the binary.
//!
//! **Knows** its own files, and how a browser may treat them. **Must never know** HTTP, the service or its types: the page
//! calls the public API with the user's session or key. `docs/how-to/use-the-console.md` describes the console.
//!
//! The files are those in `assets/`: no build step, no framework, nothing from another host. Each is a line in `SOURCES`.

mod page;
mod sign_in;
mod template;

pub use page::{ConsolePage, PageSignIn};
pub use sign_in::{
    DeviceDecision, DevicePage, ForgottenPasswordPage, InvitePage, LoginPage, ProviderButton,
    SIGN_IN_SECURITY_POLICY, device_page, forgotten_password_page, invite_page, login_page,
    password_page,
};

use std::fmt::Write as _;
use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

/// The content security policy of the page. It may only load from this origin and call it. Foreign code cannot run (scripts are
/// files of this crate, and text never becomes markup), and no other page can frame it.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                          frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; \
                          trusted-types 'none'";

const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! source {
    ($name:literal, $kind:expr) => {
        (
            $name,
            $kind,
            include_str!(concat!("../assets/", $name)).as_bytes(),
        )
    };
}

/// Name below `/console/`, content type, and content.
const SOURCES: [(&str, &str, &[u8]); 35] = [
    source!("account.js", SCRIPT),
    source!("administration.js", SCRIPT),
    source!("api.js", SCRIPT),
    source!("app.js", SCRIPT),
    source!("automations.js", SCRIPT),
    source!("charts.js", SCRIPT),
    source!("conversation.js", SCRIPT),
    source!("conversations.js", SCRIPT),
    source!("costs.js", SCRIPT),
    source!("cron.js", SCRIPT),
    source!("dialogs.js", SCRIPT),
    source!("dom.js", SCRIPT),
    source!("events.js", SCRIPT),
    source!("format.js", SCRIPT),
    source!("git.js", SCRIPT),
    source!("icon.svg", SVG),
    source!("invite.js", SCRIPT),
    source!("keys.js", SCRIPT),
    source!("live.js", SCRIPT),
    source!("login.js", SCRIPT),
    source!("logs.js", SCRIPT),
    source!("markdown.js", SCRIPT),
    source!("organization.js", SCRIPT),
    source!("network.js", SCRIPT),
    source!("overview.js", SCRIPT),
    source!("password.js", SCRIPT),
    source!("sandboxes.js", SCRIPT),
    source!("secrets.js", SCRIPT),
    source!("settings.js", SCRIPT),
    source!("skills.js", SCRIPT),
    source!("starts.js", SCRIPT),
    source!("style.css", CSS),
    source!("templates.js", SCRIPT),
    source!("timeline.js", SCRIPT),
    source!("usage.js", SCRIPT),
];

/// A file of the console.
#[derive(Debug)]
pub struct ConsoleFile {
    /// The path below `/console/`.
    pub name: &'static str,
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// The bytes of the file.
    pub content: &'static [u8],
    /// The value of `ETag`: a hash of the content, in quotation marks.
    pub etag: String,
}

static FILES: LazyLock<Vec<ConsoleFile>> =
    LazyLock::new(|| SOURCES.into_iter().map(ConsoleFile::of).collect());

impl ConsoleFile {
    fn of((name, content_type, content): (&'static str, &'static str, &'static [u8])) -> Self {
        let hash = Sha256::digest(content);
        let hex = hash.iter().take(16).fold(String::new(), |mut hex, byte| {
            // Writing to a `String` does not fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        Self {
            name,
            content_type,
            content,
            etag: format!("\"{hex}\""),
        }
    }

    /// Whether the header `If-None-Match: known` contains the tag of this file.
    #[must_use]
    pub fn matches_etag(&self, known: &str) -> bool {
        known
            .split(',')
            .map(str::trim)
            .any(|etag| etag == "*" || etag.strip_prefix("W/").unwrap_or(etag) == self.etag)
    }
}

/// The file of this name below `/console/`. The pages are [`ConsolePage`]s.
#[must_use]
pub fn find(name: &str) -> Option<&'static ConsoleFile> {
    FILES.iter().find(|file| file.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn text(file: &ConsoleFile) -> &'static str {
        std::str::from_utf8(file.content).unwrap()
    }

    /// All texts between `start` and the next quotation mark.
    fn quoted<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
        let parts = text.split(start).skip(1);
        parts.filter_map(|part| part.split('"').next()).collect()
    }

    #[test]
    fn every_file_is_referenced_and_every_reference_exists() {
        let mut named = BTreeSet::new();
        for file in &*FILES {
            let starts: &[&str] = match file.content_type {
                SCRIPT => &["from \"", "import \""],
                _ => &[],
            };
            for start in starts {
                for name in quoted(text(file), start) {
                    let name = name.strip_prefix("./").unwrap_or(name);
                    assert!(find(name).is_some(), "{} names {name}", file.name);
                    named.insert(name);
                }
            }
        }
        let pages = [
            login_page(&LoginPage::default()),
            password_page("", "", None),
            invite_page(&InvitePage::default()),
        ];
        let pages = pages.iter().map(|page| (page.as_str(), "/console/"));
        for (page, folder) in pages.chain([(page::PAGE_TEMPLATE, "{{assets}}")]) {
            for name in quoted(page, folder) {
                assert!(find(name).is_some(), "a page names {name}");
                named.insert(name);
            }
        }
        let all: BTreeSet<_> = FILES.iter().map(|file| file.name).collect();
        assert_eq!(named, all, "files without a reference are never loaded");
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/assets")).unwrap();
        let there: BTreeSet<_> = folder
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(there, all.into_iter().map(str::to_owned).collect());
    }

    #[test]
    fn files_load_nothing_from_other_hosts_and_create_no_markup() {
        let documents = [("a template", page::PAGE_TEMPLATE)];
        let files = FILES.iter().map(|file| (file.name, text(file)));
        for (name, text) in files.chain(documents) {
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for word in [
                "http:",
                "https:",
                "url(",
                "@import",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "localStorage",
                " style=\"",
                " onclick=",
                "<style",
            ] {
                assert!(!text.contains(word), "{name} has {word}");
            }
        }
    }

    #[test]
    fn etags_depend_on_the_content() {
        let (page, style) = (find("app.js").unwrap(), find("style.css").unwrap());
        assert_ne!(page.etag, style.etag);
        let etag = &page.etag;
        for known in [
            etag.clone(),
            format!("W/{etag}"),
            format!("\"x\", {etag}"),
            "*".into(),
        ] {
            assert!(page.matches_etag(&known), "{known}");
        }
        assert!(!page.matches_etag(&style.etag) && !page.matches_etag(""));
        for name in ["", "x", "../src/lib.rs", "/", "assets/app.js"] {
            assert!(find(name).is_none(), "{name}");
        }
    }
}
