//! The fingerprint of a cold start.

use std::fmt::Write;

use domain::id::{SandboxId, SpecId, UserId};
use domain::sandbox::{SandboxError, SandboxLaunch};
use secrecy::SecretString;
use serde_json::Value;
use sha2::{Digest, Sha256};
use url::Url;

use crate::backend::DockerInner;
use crate::config::{DockerConfig, DockerSpec};
use crate::container;
use crate::errors::EngineErrorKind;

impl DockerInner {
    /// The fingerprint for a configured template whose image exists.
    pub(crate) async fn recipe(&self, id: &SpecId) -> Result<String, SandboxError> {
        let spec = self.spec(id)?;
        let seen = self.engine.call("looking for the image", |docker| {
            docker.inspect_image(&spec.image)
        });
        let image = match seen.await {
            Ok(image) => image.id.unwrap_or_default(),
            Err(error)
                if matches!(
                    error.kind,
                    EngineErrorKind::ImageMissing | EngineErrorKind::NotFound
                ) =>
            {
                return Err(SandboxError::Unavailable {
                    detail: format!("the image {} is not here yet", spec.image),
                    source: None,
                });
            }
            Err(error) => return Err(error.into()),
        };
        of(&self.config, spec, &image)
    }
}

/// Hashes the image and all settings of its container; what differs between sandboxes is constant here.
fn of(config: &DockerConfig, spec: &DockerSpec, image: &str) -> Result<String, SandboxError> {
    let other = |error: Box<dyn std::error::Error + Send + Sync>| SandboxError::Other(error);
    let webhook_url = Url::parse("http://recipe/").map_err(|error| other(error.into()))?;
    let anybodys = SandboxLaunch {
        id: SandboxId::parse("recipe").map_err(|error| other(error.into()))?,
        owner: UserId::parse("recipe").map_err(|error| other(error.into()))?,
        spec: spec.id.clone(),
        session_key: SecretString::default(),
        secret_key: SecretString::default(),
        webhook_url,
        cors_origins: Vec::new(),
        dormant: false,
    };
    let body = container::body(config, spec, &anybodys, String::new(), None);
    let body = serde_json::to_value(body).map_err(|error| other(error.into()))?;
    let mut hash = Sha256::new();
    hash.update(image);
    hash.update([0]);
    // The engine applies this setting where it can, so the container's own description lacks it.
    hash.update(format!("{:?}", spec.resources.disk));
    hash.update(sorted(body).to_string());
    let mut text = String::new();
    for byte in hash.finalize().iter().take(6) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// The same document with sorted keys.
fn sorted(document: Value) -> Value {
    match document {
        Value::Object(map) => {
            let mut pairs: Vec<_> = map.into_iter().collect();
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
            let pairs = pairs.into_iter();
            Value::Object(pairs.map(|(name, it)| (name, sorted(it))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use domain::id::HostId;

    use super::*;

    #[test]
    fn whatever_a_container_is_made_with_changes_it_and_nothing_else_does() {
        let spec = DockerSpec::new(SpecId::parse("spec").unwrap(), "image:1");
        let instance = HostId::parse("host").unwrap();
        let config = DockerConfig::new(instance, vec![spec.clone()]);
        let recipe = |spec: &DockerSpec| of(&config, spec, "sha256:1").unwrap();
        let first = recipe(&spec);
        for _ in 0..20 {
            assert_eq!(recipe(&spec.clone()), first);
        }
        let mut later = spec.clone();
        later.idle_stop = None;
        later.lifetime = None;
        assert_eq!(recipe(&later), first);

        let changes: [fn(&mut DockerSpec); 8] = [
            |it| drop(it.env.insert("A".to_owned(), "1".to_owned())),
            |it| drop(it.secret_env.insert("A".to_owned(), "canary".into())),
            |it| it.resources.memory = None,
            |it| it.resources.disk = None,
            |it| it.command = None,
            |it| drop(it.ports.pop()),
            |it| it.read_only = true,
            |it| it.pause = crate::config::PauseMode::Freeze,
        ];
        let mut all = BTreeSet::from([first, of(&config, &spec, "sha256:2").unwrap()]);
        for change in changes {
            let mut spec = spec.clone();
            change(&mut spec);
            all.insert(recipe(&spec));
        }
        assert_eq!(all.len(), 10, "{all:?}");
    }
}
