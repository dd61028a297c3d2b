//! Builds the addresses under which clients reach the service, and through it the ports of sandboxes.
//!
//! The store has the addresses under which the service reaches a sandbox. Responses contain public ones, built here: below
//! the public URL, so that one port and one host name are enough, or unchanged (`direct`).

use std::borrow::Cow;
use std::sync::Arc;

use domain::encryption::vault::Fingerprints;
use domain::id::SandboxId;
use domain::sandbox::{AGENT_SERVER, ExposedUrl, Sandbox, SandboxStatus, SandboxView};
use domain::user::identity::KeyHash;
use url::{Position, Url};

/// First segment of signed paths: `/s/{sandbox}/{name}/{signature}/…`.
pub(crate) const SIGNED: &str = "s";
/// Purpose of the keyed hash of a signed path.
const PURPOSE: &str = "sandbox-path";

/// The configuration of public addresses.
#[derive(Debug, Clone, Default)]
pub struct AddressConfig {
    /// The URL that clients use, perhaps with a path.
    pub public_url: Option<Url>,
    /// The URL for ports that sandboxes expose beside the agent server (editor, worker ports), if it has its own host name.
    pub sandbox_url: Option<Url>,
    /// Whether responses contain the sandboxes' own addresses instead.
    pub direct: bool,
    /// The host name by which sandboxes call this service, if they have a network of their own.
    pub callback_host: Option<String>,
}

/// Builds addresses.
#[derive(Clone)]
pub(crate) struct Addresses {
    /// The public URL, without a trailing slash; empty if it is not configured.
    public: String,
    /// Path of the public URL, without a trailing slash.
    prefix: String,
    hosts: Vec<String>,
    /// Public URL without a trailing slash; `None`: responses contain the sandboxes' own addresses.
    base: Option<String>,
    sandbox_base: Option<String>,
    /// Path of `sandbox_base`.
    sandbox_prefix: String,
    /// Host and port of the URL for sandbox ports, if it differs from the public URL's.
    own_host: Option<String>,
    prefixes: Vec<String>,
    fingerprints: Arc<dyn Fingerprints>,
}

impl Addresses {
    /// Builds addresses with this configuration. `fingerprints` signs paths.
    pub(crate) fn new(config: &AddressConfig, fingerprints: Arc<dyn Fingerprints>) -> Self {
        let through = config.public_url.as_ref().filter(|_| !config.direct);
        let sandboxes = through.map(|url| config.sandbox_url.as_ref().unwrap_or(url));
        let own_host = config.sandbox_url.as_ref().filter(|own| {
            let public = config.public_url.as_ref();
            public.is_none_or(|public| public.host_str() != own.host_str())
        });
        let own_host =
            own_host.map(|url| url[Position::BeforeHost..Position::AfterPort].to_owned());
        let urls = || {
            [&config.public_url, &config.sandbox_url]
                .into_iter()
                .flatten()
        };
        let mut prefixes: Vec<String> = urls()
            .map(path_of)
            .filter(|path| !path.is_empty())
            .collect();
        prefixes.dedup();
        Self {
            public: config
                .public_url
                .as_ref()
                .map_or_else(String::new, |url| base_of(url).to_owned()),
            prefix: config.public_url.as_ref().map_or_else(String::new, path_of),
            hosts: urls()
                .filter_map(|url| url.host_str())
                .map(str::to_owned)
                .chain(config.callback_host.clone())
                .collect(),
            base: through.map(|url| base_of(url).to_owned()),
            sandbox_base: sandboxes.map(|url| base_of(url).to_owned()),
            sandbox_prefix: sandboxes.map_or_else(String::new, path_of),
            own_host,
            prefixes,
            fingerprints,
        }
    }

    /// The same for a client that reaches the service at another URL, which has no path.
    pub(crate) fn below(&self, base: &str) -> Self {
        Self {
            base: Some(base.to_owned()),
            sandbox_base: Some(base.to_owned()),
            sandbox_prefix: String::new(),
            own_host: None,
            ..self.clone()
        }
    }

    /// Whether a configured URL has this host name.
    pub(crate) fn has_host(&self, name: &str) -> bool {
        self.hosts.iter().any(|host| host == name)
    }

    /// The public URL, for links that people pass on.
    pub(crate) fn public(&self) -> &str {
        &self.public
    }

    /// The public URL without a trailing slash; empty if responses contain the sandboxes' own addresses.
    pub(crate) fn public_base(&self) -> &str {
        self.base.as_deref().unwrap_or_default()
    }

    /// Path of the public URL: empty, or `/agents`. Every path in a response starts with it.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The path without the prefix; `None` if it does not have it. A proxy may strip the prefix or pass it on.
    pub(crate) fn without_prefix<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rests = self
            .prefixes
            .iter()
            .filter_map(|prefix| path.strip_prefix(prefix.as_str()));
        let mut rests = rests.filter(|rest| rest.is_empty() || rest.starts_with('/'));
        rests
            .next()
            .map(|rest| if rest.is_empty() { "/" } else { rest })
    }

    /// Whether sandbox ports have their own host name, and so cannot reach into pages of this service.
    pub(crate) fn has_own_host(&self) -> bool {
        self.own_host.is_some()
    }

    /// Whether a path is not served on this host. The host of sandbox ports serves nothing else, so that their pages cannot
    /// reach the service, and the service's host serves no sandbox ports. `hosts` are all names the request carries, as a
    /// browser writes them; if one is the sandboxes' host, the request counts as theirs.
    pub(crate) fn is_elsewhere(&self, hosts: [Option<&str>; 2], path: &str) -> bool {
        let Some(own) = &self.own_host else {
            return false;
        };
        let is_signed = path
            .strip_prefix('/')
            .and_then(|path| path.strip_prefix(SIGNED));
        let is_signed = is_signed.is_some_and(|rest| rest.starts_with('/'));
        let mut hosts = hosts.into_iter().flatten();
        hosts.any(|host| host.eq_ignore_ascii_case(own)) != is_signed
    }

    /// The public address of a RUNNING sandbox's agent server. Clients append paths that start with a slash.
    pub(crate) fn agent_server<'a>(&'a self, sandbox: &'a Sandbox) -> Option<&'a str> {
        let mut urls = sandbox.exposed_urls.iter();
        let exposed = urls.find(|exposed| exposed.name == AGENT_SERVER)?;
        (sandbox.status == SandboxStatus::Running).then(|| {
            self.base
                .as_deref()
                .unwrap_or_else(|| base_of(&exposed.url))
        })
    }

    /// Whether clients have this address of agent servers from the service. With direct addresses each sandbox has its own;
    /// then every one counts.
    pub(crate) fn is_agent_server_base(&self, url: &str) -> bool {
        let same = |base: &str| Url::parse(url).is_ok_and(|url| base_of(&url) == base);
        self.base.as_deref().is_none_or(same)
    }

    /// The public address of a sandbox's port. Lists contain several for each sandbox, so it is built as text: names, ids and
    /// signatures need no escapes in a URL.
    pub(crate) fn exposed<'a>(
        &'a self,
        sandbox: &SandboxView,
        exposed: &'a ExposedUrl,
    ) -> Cow<'a, str> {
        match (&self.base, &self.sandbox_base) {
            (Some(base), _) if exposed.name == AGENT_SERVER => base.into(),
            (_, Some(base)) => {
                let (id, hash) = (&sandbox.id, &sandbox.key_hash);
                let signature = self.signature(id, hash, &exposed.name);
                format!("{base}/{SIGNED}/{id}/{}/{signature}/", exposed.name).into()
            }
            _ => exposed.url.as_str().into(),
        }
    }

    /// The path of a port, without a trailing slash.
    pub(crate) fn signed_path(&self, id: &SandboxId, name: &str, signature: &str) -> String {
        let prefix = &self.sandbox_prefix;
        format!("{prefix}/{SIGNED}/{id}/{name}/{signature}")
    }

    /// Whether this is the signature of the sandbox's port. It is valid as long as the sandbox keeps its session key. The
    /// comparison takes the same time for every wrong signature.
    pub(crate) fn is_signed(&self, sandbox: &Sandbox, name: &str, signature: &str) -> bool {
        let expected = self.signature(&sandbox.id, &sandbox.key_hash, name);
        let differing = expected.bytes().zip(signature.bytes());
        let differing = differing.fold(0, |all, (ours, theirs)| all | (ours ^ theirs));
        expected.len() == signature.len() && std::hint::black_box(differing) == 0
    }

    /// A keyed hash that requires the installation's secret. It becomes invalid with the sandbox's session key.
    fn signature(&self, id: &SandboxId, hash: &KeyHash, name: &str) -> String {
        // Neither ids nor hashes contain line feeds.
        let text = format!("{id}\n{name}\n{hash}");
        let hash = self.fingerprints.fingerprint(PURPOSE, text.as_bytes());
        hash.rsplit(':').next().unwrap_or_default().to_owned()
    }
}

fn path_of(url: &Url) -> String {
    url.path().trim_end_matches('/').to_owned()
}

/// A URL without a trailing slash, as a base for paths.
pub(crate) fn base_of(url: &Url) -> &str {
    url.as_str().trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use keyring::InstallationKey;

    use super::*;
    use crate::tests::settings::sandbox;

    fn addresses(public: &str, own: Option<&str>, direct: bool) -> Addresses {
        let config = AddressConfig {
            public_url: Some(public.parse().unwrap()),
            sandbox_url: own.map(|own| own.parse().unwrap()),
            direct,
            callback_host: None,
        };
        Addresses::new(&config, Arc::new(InstallationKey::generate().unwrap()))
    }

    fn exposed(name: &str) -> ExposedUrl {
        ExposedUrl {
            name: name.to_owned(),
            url: "http://127.0.0.1:9001/".parse().unwrap(),
            port: 8001,
        }
    }

    fn running() -> Sandbox {
        let mut sandbox = sandbox();
        sandbox.status = SandboxStatus::Running;
        sandbox.exposed_urls = Arc::new([exposed(AGENT_SERVER)]);
        sandbox
    }

    #[test]
    fn the_agent_server_url_is_public_or_direct() {
        let sandbox = running();
        for (public, direct, expected) in [
            ("https://h/", false, "https://h"),
            ("https://h:1/agents/", false, "https://h:1/agents"),
            ("https://h/agents", false, "https://h/agents"),
            ("https://h/", true, "http://127.0.0.1:9001"),
        ] {
            let it = addresses(public, None, direct);
            assert_eq!(it.agent_server(&sandbox), Some(expected));
            let url_text = it.exposed(&sandbox.clone().into(), &sandbox.exposed_urls[0]);
            assert_eq!(url_text.trim_end_matches('/'), expected);
        }
        let mut paused = sandbox;
        paused.status = SandboxStatus::Paused;
        assert_eq!(
            addresses("https://h/", None, false).agent_server(&paused),
            None
        );
    }

    #[test]
    fn the_base_of_agent_servers_is_the_public_url() {
        let public = addresses("https://agents.example/team/", None, false);
        for (url, is_base) in [
            ("https://agents.example/team", true),
            ("https://agents.example/team/", true),
            ("HTTPS://Agents.Example:443/team", true),
            ("https://agents.example/", false),
            ("http://agents.example/team", false),
            ("https://agents.example.evil/team", false),
            ("https://agents.example/team?a", false),
            ("agents.example/team", false),
            ("", false),
        ] {
            assert_eq!(public.is_agent_server_base(url), is_base, "{url}");
        }
        let direct = addresses("https://agents.example/", None, true);
        assert!(direct.is_agent_server_base("http://127.0.0.1:4321"));
    }

    #[test]
    fn other_ports_are_under_signed_paths() {
        let sandbox = running();
        let it = addresses("https://h/agents/", None, false);
        let worker = exposed("WORKER_1");
        let url_text = it.exposed(&sandbox.clone().into(), &worker);
        let start = format!("https://h/agents/s/{}/WORKER_1/", sandbox.id);
        let signature = url_text.strip_prefix(&start).unwrap().trim_end_matches('/');
        assert_eq!(signature.len(), 64, "{url_text}");
        assert!(it.is_signed(&sandbox, "WORKER_1", signature));
        assert!(
            !it.is_signed(&sandbox, "WORKER_2", signature),
            "of this port only"
        );
        assert!(!it.is_signed(&sandbox, "WORKER_1", &signature[1..]));
        assert!(!it.is_signed(&sandbox, "WORKER_1", ""));
        let mut other = sandbox.clone();
        other.key_hash = domain::user::identity::KeyHash::of("another");
        assert!(
            !it.is_signed(&other, "WORKER_1", signature),
            "it dies with the key"
        );
        let mut other = sandbox.clone();
        other.id = SandboxId::parse("another").unwrap();
        assert!(
            !it.is_signed(&other, "WORKER_1", signature),
            "of this sandbox only"
        );
        let stranger = addresses("https://h/agents/", None, false);
        assert!(
            !stranger.is_signed(&sandbox, "WORKER_1", signature),
            "by our secret only"
        );
        let path = it.signed_path(&sandbox.id, "WORKER_1", signature);
        assert_eq!(format!("https://h{path}/"), url_text);
    }

    #[test]
    fn sandboxes_may_have_a_host_of_their_own() {
        let sandbox = running();
        let it = addresses("https://h/agents", Some("https://boxes.h/"), false);
        assert!(
            it.exposed(&sandbox.clone().into(), &exposed("VSCODE"))
                .starts_with("https://boxes.h/s/")
        );
        assert!(it.has_own_host());
        for (host, path, is_elsewhere) in [
            ("boxes.h", "/s/a/W/f/", false),
            ("BOXES.h", "/api/v1/users/me", true),
            ("boxes.h", "/", true),
            ("boxes.h", "/sandboxes", true),
            ("h", "/s/a/W/f/", true),
            ("h", "/api/v1/users/me", false),
            ("127.0.0.1:3000", "/ready", false),
        ] {
            assert_eq!(
                it.is_elsewhere([Some(host), None], path),
                is_elsewhere,
                "{host}{path}"
            );
        }
        // A proxy may name another host than the browser; a page must not be able to choose its host.
        for hosts in [["h", "boxes.h"], ["boxes.h", "h"], ["boxes.h", "127.0.0.1"]] {
            let hosts = hosts.map(Some);
            assert!(it.is_elsewhere(hosts, "/api/v1/users/me"), "{hosts:?}");
            assert!(!it.is_elsewhere(hosts, "/s/a/W/f/"), "{hosts:?}");
        }
        let shared = addresses("https://h/", None, false);
        assert!(!shared.is_elsewhere([Some("h"), None], "/s/a/W/f/"));
        assert_eq!(it.agent_server(&sandbox), Some("https://h/agents"));
        assert!(!addresses("https://h/a", Some("https://h/b"), false).has_own_host());
    }

    #[test]
    fn a_prefix_ends_where_a_segment_does() {
        let it = addresses("https://h/a/gents/", None, false);
        for (path, rest) in [
            ("/a/gents/api/v1/x", Some("/api/v1/x")),
            ("/a/gents/", Some("/")),
            ("/a/gents", Some("/")),
            ("/a/gentsx", None),
            ("/api/v1/x", None),
        ] {
            assert_eq!(it.without_prefix(path), rest, "{path}");
        }
        assert_eq!(
            addresses("https://h/", None, false).without_prefix("/x"),
            None
        );
    }
}
