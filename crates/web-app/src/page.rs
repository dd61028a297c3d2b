//! `index.html`: its parameters, and the policy that permits exactly its scripts.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use url::Url;

/// The start tag that the parameters follow: they must run before every script.
const HEAD: &str = "<head>";

/// Selects the first organization unless the browser keeps one of `IDS`. The package (1.20.0) keeps its selection here, and does
/// not draw a conversation whose page is the first one in a browser, or anything while it keeps an organization of someone else.
const SELECTION: &str = "{const key=\"openhands-active-backend\",stores=[sessionStorage,localStorage],ids=IDS;let id;\
    try{id=JSON.parse(stores.map(it=>it.getItem(key)).find(Boolean)).orgId}catch{}\
    if(!ids.includes(id))for(const it of stores)\
    it.setItem(key,JSON.stringify({backendId:\"locked-cloud\",orgId:ids[0]}))}";

/// `index.html` of a build, ready for the parameters of a request.
#[derive(Debug)]
pub struct IndexPage {
    before: String,
    after: String,
    /// Sources of the policy for the inline scripts: `'sha256-…'`.
    script_hashes: BTreeSet<String>,
}

/// The origins that a page may talk to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageOrigins {
    /// The origin of the page itself, e.g. `https://agents.example`.
    pub own: String,
    /// The origin under which conversations are reached.
    pub conversations: String,
    /// The origin of other pages of sandboxes, if they have their own.
    pub sandboxes: Option<String>,
}

/// A page for one origin.
#[derive(Debug)]
pub struct RenderedPage {
    /// The document.
    pub html: String,
    /// The value of `Content-Security-Policy`.
    pub policy: String,
}

impl IndexPage {
    /// Reads the page of a build.
    ///
    /// # Errors
    /// What the page lacks.
    pub(crate) fn parse(html: &str) -> Result<Self, String> {
        let lower = html.to_ascii_lowercase();
        let mut heads = lower.match_indices(HEAD);
        let Some((at, _)) = heads.next() else {
            return Err(
                "index.html has no <head>, so the service cannot write its parameters".into(),
            );
        };
        let (before, after) = html.split_at(at + HEAD.len());
        if lower[..at].contains("<script") {
            return Err("a script of index.html precedes its <head>".into());
        }
        Ok(Self {
            before: before.to_owned(),
            after: after.to_owned(),
            script_hashes: inline_scripts(html)?
                .into_iter()
                .map(source_of_hash)
                .collect(),
        })
    }

    /// The page for a request. The lock binds the page to its own origin, where cookies identify the user. Telemetry is
    /// off. `organizations` are those of the user, the current one first.
    #[must_use]
    pub fn render(&self, origins: &PageOrigins, organizations: &[String]) -> RenderedPage {
        let mut script = format!(
            "window.__AGENT_CANVAS_LOCK_TO_CLOUD__={};window.__AGENT_CANVAS_DO_NOT_TRACK__=true;",
            script_text(&json!(origins.own))
        );
        if !organizations.is_empty() {
            script.push_str(&SELECTION.replace("IDS", &script_text(&json!(organizations))));
        }
        RenderedPage {
            html: format!("{}<script>{script}</script>{}", self.before, self.after),
            policy: self.policy(&script, origins),
        }
    }

    /// Permits the files of this origin and the inline scripts of the page. The package sets styles in attributes, and plays,
    /// shows and runs what it builds itself (`blob:`, `data:`).
    fn policy(&self, script: &str, origins: &PageOrigins) -> String {
        let mut hashes = self.script_hashes.clone();
        hashes.insert(source_of_hash(script));
        let hashes: Vec<_> = hashes.into_iter().collect();
        let mut connections = BTreeSet::from([
            // `'self'` includes sockets in current browsers only.
            socket_origin(&origins.own),
        ]);
        if origins.conversations != origins.own {
            connections.insert(origins.conversations.clone());
            connections.insert(socket_origin(&origins.conversations));
        }
        let connections: Vec<_> = connections.into_iter().collect();
        let frames = origins.sandboxes.as_deref().unwrap_or_default();
        let policy = format!(
            "default-src 'self'; base-uri 'self'; object-src 'none'; frame-ancestors 'none'; form-action 'self'; \
             script-src 'self' {}; style-src 'self' 'unsafe-inline'; font-src 'self' data:; \
             img-src 'self' data: blob:; media-src 'self' blob:; worker-src 'self' blob:; \
             frame-src 'self' data: blob: {frames}; connect-src 'self' {}",
            hashes.join(" "),
            connections.join(" ")
        );
        policy.replace(" ;", ";")
    }
}

/// The contents of all scripts without `src`.
fn inline_scripts(html: &str) -> Result<Vec<&str>, String> {
    let lower = html.to_ascii_lowercase();
    let mut scripts = Vec::new();
    let mut at = 0;
    while let Some(start) = lower[at..].find("<script").map(|start| at + start) {
        let Some(tag_end) = lower[start..].find('>').map(|end| start + end) else {
            break;
        };
        let Some(end) = lower[tag_end..].find("</script").map(|end| tag_end + end) else {
            return Err("a script of index.html does not end".into());
        };
        if !has_source(&lower[start..tag_end]) {
            scripts.push(&html[tag_end + 1..end]);
        }
        at = end;
    }
    Ok(scripts)
}

fn has_source(tag: &str) -> bool {
    tag.split_ascii_whitespace()
        .any(|attribute| attribute.starts_with("src="))
}

fn source_of_hash(script: &str) -> String {
    let digest = STANDARD.encode(Sha256::digest(script.as_bytes()));
    format!("'sha256-{digest}'")
}

/// A literal that cannot end the script.
fn script_text(value: &Value) -> String {
    value
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// `wss://host` for `https://host`.
fn socket_origin(origin: &str) -> String {
    match Url::parse(origin) {
        Ok(url) if url.scheme() == "https" => origin.replacen("https", "wss", 1),
        _ => origin.replacen("http", "ws", 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTML: &str = "<!DOCTYPE html><html><head><link href=\"/a.css\"></head><body><script>one()</script>\
        <script type=\"module\" async=\"\">import '/x';</script><script src=\"/b.js\"></script></body></html>";

    fn origins(own: &str, conversations: &str, sandboxes: Option<&str>) -> PageOrigins {
        PageOrigins {
            own: own.to_owned(),
            conversations: conversations.to_owned(),
            sandboxes: sandboxes.map(str::to_owned),
        }
    }

    #[test]
    fn the_parameters_come_first_and_the_policy_has_all_inline_scripts() {
        let page = IndexPage::parse(HTML).unwrap();
        let own = "https://agents.example";
        let rendered = page.render(&origins(own, own, None), &[]);
        let script = "window.__AGENT_CANVAS_LOCK_TO_CLOUD__=\"https://agents.example\";\
                      window.__AGENT_CANVAS_DO_NOT_TRACK__=true;";
        let start = format!("<!DOCTYPE html><html><head><script>{script}</script><link");
        assert!(rendered.html.starts_with(&start), "{}", rendered.html);
        for script in [script, "one()", "import '/x';"] {
            let hash = source_of_hash(script);
            assert!(rendered.policy.contains(&hash), "{script}");
        }
        assert_eq!(rendered.policy.matches("sha256-").count(), 3);
        assert!(
            rendered
                .policy
                .contains("connect-src 'self' wss://agents.example")
        );
        assert!(rendered.policy.contains("frame-src 'self' data: blob:;"));
        assert!(!rendered.policy.contains("script-src 'self' 'unsafe"));
    }

    #[test]
    fn other_origins_are_named() {
        let page = IndexPage::parse(HTML).unwrap();
        let origins = origins(
            "http://localhost:3000",
            "http://127.0.0.1:3000",
            Some("https://boxes.example"),
        );
        let rendered = page.render(&origins, &["a".to_owned(), "b".to_owned()]);
        assert!(rendered.html.contains("ids=[\"a\",\"b\"];"));
        for part in [
            "frame-src 'self' data: blob: https://boxes.example;",
            "connect-src 'self' http://127.0.0.1:3000 ws://127.0.0.1:3000 ws://localhost:3000",
        ] {
            assert!(rendered.policy.contains(part), "{}", rendered.policy);
        }
    }

    #[test]
    fn a_page_without_a_place_for_the_parameters_is_refused() {
        for html in [
            "",
            "<html><body></body></html>",
            "<script>x()</script><head></head>",
            "<head><script>x()",
        ] {
            assert!(IndexPage::parse(html).is_err(), "{html}");
        }
    }

    #[test]
    fn a_text_cannot_end_the_script() {
        assert_eq!(
            script_text(&json!("</script>\u{2028}\"")),
            "\"\\u003c/script\\u003e\\u2028\\\"\""
        );
    }
}
