//! Sections `sandbox` and `start`.

use std::time::Duration;

use domain::id::HostId;
use settings::SettingReader;
use url::Url;

use super::storage::StorageSettings;
use crate::config::Backends;

#[derive(Debug, Clone)]
pub(crate) struct SandboxSettings {
    /// The name of the backend; `None`: the first that is usable.
    pub(crate) backend: Option<&'static str>,
    pub(crate) max_running_per_user: u32,
    pub(crate) max_running: u32,
    /// Warm sandboxes to keep; `None`: the default of the backend.
    pub(crate) warm: Option<u32>,
    pub(crate) warm_max_age: Duration,
    /// Concurrent boots of agent servers; `None`: the backend's own number.
    pub(crate) parallel_starts: Option<usize>,
    /// The URL by which sandboxes reach the service; `None`: its own address.
    pub(crate) callback_url: Option<Url>,
    pub(crate) shared_host: Option<HostId>,
    /// Whether clients get direct URLs of sandboxes instead of URLs of this service.
    pub(crate) direct_urls: bool,
}

impl SandboxSettings {
    pub(in crate::config) fn read(
        reader: &SettingReader<'_>,
        storage: &StorageSettings,
        backends: &Backends,
    ) -> Self {
        Self {
            shared_host: shared_host(reader, storage, backends),
            direct_urls: reader.switch("sandbox.direct_urls"),
            backend: backend(reader, backends),
            max_running_per_user: reader.number("sandbox.max_running_per_user", 0..=100_000),
            max_running: reader.number("sandbox.max_running", 0..=100_000),
            warm: reader.parsed(
                "sandbox.warm",
                "auto or a number from 0 to 1000",
                warm_count,
            ),
            warm_max_age: reader.duration("sandbox.warm_max_age"),
            parallel_starts: sandbox_provider::parallel_starts(reader),
            callback_url: reader.optional_url("sandbox.callback_url"),
        }
    }
}

/// Parses a number; `auto` is resolved when the backend is known.
#[expect(
    clippy::option_option,
    reason = "the outer None is a text that does not parse, the inner one the automatic choice"
)]
fn warm_count(text: &str) -> Option<Option<u32>> {
    if text == "auto" {
        return Some(None);
    }
    let number = text.parse().ok().filter(|number| *number <= 1_000);
    number.map(Some)
}

fn backend(reader: &SettingReader<'_>, backends: &Backends) -> Option<&'static str> {
    let names = backends.iter().map(|backend| backend.features().name);
    let names: Vec<_> = names.map(|name| (name, Some(name))).collect();
    reader.choice("sandbox.backend", &[&[("auto", None)][..], &names].concat())
}

/// The host that several services share. It needs Postgres and one engine, so that they see each other's changes.
fn shared_host(
    reader: &SettingReader<'_>,
    storage: &StorageSettings,
    backends: &Backends,
) -> Option<HostId> {
    let host = reader.optional_parsed("sandbox.host", "a name without spaces", |text| {
        HostId::parse(text).ok()
    })?;
    if !storage.is_shared {
        reader.problem("sandbox.host", "needs Postgres: set WORKSPACE_STORAGE__URL");
    }
    let chosen = reader.text("sandbox.backend");
    let sharing = backends
        .iter()
        .filter(|backend| backend.features().can_share_host);
    let sharing: Vec<_> = sharing.map(|backend| backend.features().name).collect();
    if !sharing.contains(&chosen.as_str()) {
        let names = sharing.join("\" or \"");
        reader.problem(
            "sandbox.host",
            &format!("needs sandbox.backend = \"{names}\""),
        );
    }
    Some(host)
}

#[derive(Debug, Clone)]
pub(crate) struct StartSettings {
    pub(crate) parallel: usize,
    /// Time for a new sandbox's agent server to answer.
    pub(crate) sandbox_deadline: Duration,
    /// Time for the backend to become ready for its first start.
    pub(crate) prepare_deadline: Duration,
    pub(crate) clone_deadline: Duration,
    pub(crate) setup_deadline: Duration,
}

impl StartSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Self {
        Self {
            parallel: reader.number("start.parallel", 1..=1000),
            sandbox_deadline: reader.deadline("start.sandbox_deadline"),
            prepare_deadline: reader.deadline("start.prepare_deadline"),
            clone_deadline: reader.deadline("start.clone_deadline"),
            setup_deadline: reader.deadline("start.setup_deadline"),
        }
    }
}
