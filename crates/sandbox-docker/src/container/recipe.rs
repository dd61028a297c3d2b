//! The fingerprint of a cold start.

use std::net::SocketAddr;

use domain::id::{OwnerId, SandboxId, SpecId};
use domain::sandbox::{PrepareProgress, SandboxError, SandboxLaunch};
use sandbox_provider::short_digest;
use secrecy::SecretString;
use url::Url;

use crate::backend::DockerInner;
use crate::config::{DockerConfig, DockerSpec};
use crate::container::{self, Attachments};
use crate::network::proxy;

impl DockerInner {
    /// The fingerprint for a configured template whose image exists.
    pub(crate) async fn recipe(&self, id: &SpecId) -> Result<String, SandboxError> {
        let spec = self.spec(id)?;
        let image = self.engine.image(&spec.image).await?.ok_or_else(|| {
            SandboxError::unavailable(format!(
                "the container engine does not have the image {} yet: the first start pulls it",
                spec.image
            ))
        })?;
        fingerprint(&self.config, spec, &image.id.unwrap_or_default())
    }
}

/// Hashes the image and all settings of its container. Values that differ between sandboxes are placeholders.
fn fingerprint(
    config: &DockerConfig,
    spec: &DockerSpec,
    image: &str,
) -> Result<String, SandboxError> {
    let placeholder = SandboxLaunch {
        id: SandboxId::parse("recipe").map_err(SandboxError::other)?,
        owner: OwnerId::parse("recipe").map_err(SandboxError::other)?,
        spec: spec.id.clone(),
        session_key: SecretString::default(),
        secret_key: SecretString::default(),
        webhook_url: Url::parse("http://recipe/").map_err(SandboxError::other)?,
        cors_origins: Vec::new(),
        dormant: false,
        progress: PrepareProgress::silent(),
    };
    // Its address is that of the engine's network, which may not exist yet.
    let proxy = proxy::may_use(config, spec).then(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    let attached = Attachments {
        proxy,
        ..Attachments::default()
    };
    let body = container::body(config, spec, &placeholder, attached);
    let mut body = serde_json::to_value(body).map_err(SandboxError::other)?;
    body.sort_all_objects();
    // The engine applies the limit of the disk where it can, so the container's own description lacks it.
    let disk = format!("{:?}", spec.resources.disk);
    let body = body.to_string();
    let parts = [image, &disk, &body].map(str::as_bytes);
    Ok(short_digest(&parts))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use domain::id::HostId;

    use super::*;

    #[test]
    fn every_setting_of_a_container_changes_the_fingerprint_and_no_other_one_does() {
        let spec = DockerSpec::new(SpecId::parse("spec").unwrap(), "image:1");
        let instance = HostId::parse("host").unwrap();
        let config = DockerConfig::new(instance, vec![spec.clone()]);
        let recipe = |spec: &DockerSpec| fingerprint(&config, spec, "sha256:1").unwrap();
        let first = recipe(&spec);
        for _ in 0..20 {
            assert_eq!(recipe(&spec.clone()), first);
        }
        let mut later = spec.clone();
        later.idle_stop = None;
        later.lifetime = None;
        assert_eq!(recipe(&later), first);

        let changes: [fn(&mut DockerSpec); 8] = [
            |spec| drop(spec.env.insert("A".to_owned(), "1".to_owned())),
            |spec| drop(spec.secret_env.insert("A".to_owned(), "canary".into())),
            |spec| spec.resources.memory = None,
            |spec| spec.resources.disk = None,
            |spec| spec.command = None,
            |spec| drop(spec.ports.pop()),
            |spec| spec.read_only = true,
            |spec| spec.pause = crate::config::PauseMode::Freeze,
        ];
        let mut all = BTreeSet::from([first, fingerprint(&config, &spec, "sha256:2").unwrap()]);
        for change in changes {
            let mut spec = spec.clone();
            change(&mut spec);
            all.insert(recipe(&spec));
        }
        assert_eq!(all.len(), 10, "{all:?}");
    }
}
