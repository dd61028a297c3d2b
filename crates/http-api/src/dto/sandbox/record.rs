//! Sandboxes on the wire; see `docs/reference/wire/sandboxes.md`.

use application::sandboxes::SandboxService;
use domain::clock::Timestamp;
use domain::id::{SandboxId, SpecId, UserId};
use domain::sandbox::{ExposedUrl, LogTail, SandboxStatus, SandboxView};
use secrecy::{ExposeSecret, SecretString};
use url::form_urlencoded;

use crate::addresses::Addresses;
use crate::decode::model;
use crate::dto::secret_text::SecretText;

/// Name of the editor's exposed URL.
const VSCODE: &str = "VSCODE";

/// A sandbox.
#[model(response = SandboxInfo)]
pub(crate) struct SandboxDto {
    id: SandboxId,
    #[schema(value_type = Option<String>, required)]
    created_by_user_id: UserId,
    /// The sandbox spec that it was created from.
    sandbox_spec_id: SpecId,
    status: SandboxStatus,
    session_api_key: Option<SecretText>,
    /// URLs of its ports, only while it is RUNNING.
    exposed_urls: Option<Vec<ExposedUrlDto>>,
    created_at: Timestamp,
    /// Why it is in ERROR or MISSING.
    status_detail: Option<String>,
    /// The hosts to which its owner limited it; null for all that the service allows.
    egress_allow: Option<Vec<String>>,
}

/// An exposed port of a sandbox.
#[model(response = ExposedUrl)]
pub(crate) struct ExposedUrlDto {
    /// `AGENT_SERVER`, `VSCODE`, `WORKER_1` or `WORKER_2`.
    name: String,
    /// The public URL. The editor's contains the session key.
    url: SecretText,
    /// The port inside the sandbox.
    port: u16,
}

impl SandboxDto {
    /// Converts a sandbox for its owner.
    pub(crate) fn of(
        sandbox: impl Into<SandboxView>,
        sandboxes: &SandboxService,
        addresses: &Addresses,
    ) -> Self {
        let sandbox = sandbox.into();
        let running = sandbox.status == SandboxStatus::Running;
        let key = sandboxes.session_key(&sandbox);
        let workspace = sandbox.workspace.as_deref();
        let exposed = running.then(|| {
            let urls = sandbox.exposed_urls.iter();
            urls.map(|exposed| {
                let url = addresses.exposed(&sandbox, exposed);
                ExposedUrlDto::of(exposed, &url, key.as_deref(), workspace)
            })
            .collect()
        });
        Self {
            id: sandbox.id,
            created_by_user_id: sandbox.owner.user(),
            sandbox_spec_id: sandbox.spec_id,
            status: sandbox.status,
            session_api_key: key.map(SecretText::from),
            exposed_urls: exposed,
            created_at: sandbox.created_at,
            status_detail: sandbox.status_detail,
            egress_allow: sandbox.egress.map(|list| list.entries().to_vec()),
        }
    }
}

impl ExposedUrlDto {
    fn of(
        exposed: &ExposedUrl,
        url: &str,
        key: Option<&SecretString>,
        workspace: Option<&str>,
    ) -> Self {
        let url = match key {
            Some(key) if exposed.name == VSCODE => editor_url(url, key, workspace),
            _ => url.trim_end_matches('/').to_owned(),
        };
        Self {
            name: exposed.name.clone(),
            url: SecretString::from(url).into(),
            port: exposed.port,
        }
    }
}

/// The editor's URL, with its key and the directory to open in the query.
fn editor_url(url: &str, key: &SecretString, workspace: Option<&str>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("tkn", key.expose_secret());
    if let Some(folder) = workspace {
        query.append_pair("folder", folder);
    }
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{}", query.finish())
}

/// `?id=…&id=…`: a batch read by text ids. An invalid id counts as unknown.
#[model(query)]
pub(crate) struct IdsQuery {
    /// The ids, at most 100.
    #[decode(rename = "id")]
    pub ids: Vec<String>,
}

/// The query of `POST /sandboxes`.
#[model(query)]
pub(crate) struct NewSandboxQuery {
    /// The sandbox spec; the default one if absent.
    #[param(nullable = false)]
    pub sandbox_spec_id: Option<String>,
}

/// The query of `DELETE /sandboxes/{id}`, in which clients repeat the id.
#[model(query)]
pub(crate) struct DeleteSandboxQuery {
    /// The id again; optional, and must equal the one in the path.
    #[param(nullable = false)]
    pub sandbox_id: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, url: &str, key: Option<&SecretString>) -> String {
        let exposed = ExposedUrl {
            name: name.to_owned(),
            url: url.parse().unwrap(),
            port: 1,
        };
        let dto = ExposedUrlDto::of(&exposed, exposed.url.as_str(), key, Some("/workspace/a b"));
        dto.url.expose().to_owned()
    }

    #[test]
    fn only_the_editor_url_contains_the_key() {
        let key = SecretString::from("k+1");
        assert_eq!(
            shown("VSCODE", "http://h:1/", Some(&key)),
            "http://h:1/?tkn=k%2B1&folder=%2Fworkspace%2Fa+b"
        );
        assert_eq!(
            shown("AGENT_SERVER", "http://h:1/", Some(&key)),
            "http://h:1"
        );
        assert_eq!(
            shown("WORKER_1", "http://h:1/x/", Some(&key)),
            "http://h:1/x"
        );
        assert_eq!(shown("VSCODE", "http://h:1/", None), "http://h:1");
    }
}

/// The part of a log to read.
#[model(query, into = LogTail)]
pub(crate) struct LogsQuery {
    /// Number of lines from the end.
    #[decode(default = 200)]
    #[validate(range(min = 0, max = 10_000))]
    #[into(u32::try_from(lines).unwrap_or_default())]
    lines: i64,
    /// Whether to follow new lines.
    #[decode(default = false)]
    follow: bool,
}
