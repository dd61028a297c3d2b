//! Names, labels and annotations by which the service recognises its own objects.

use std::collections::BTreeMap;

use domain::id::{HostId, SandboxId};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sha2::{Digest as _, Sha256};

/// Labels. Their values are limited to 63 characters, so ids are hashed.
pub(crate) const INSTANCE: &str = "agent-workspace/instance";
pub(crate) const NAME: &str = "agent-workspace/name";
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
pub(crate) const MANAGER: &str = "agent-workspace";

/// Annotations, of the claim and mostly of it alone.
pub(crate) const SANDBOX: &str = "agent-workspace/sandbox";
pub(crate) const OWNER: &str = "agent-workspace/owner";
pub(crate) const SPEC: &str = "agent-workspace/spec";
pub(crate) const CALLBACK: &str = "agent-workspace/callback";
/// Ports of the sandbox as `NAME=PORT`, separated by commas.
pub(crate) const PORTS: &str = "agent-workspace/ports";
pub(crate) const WORKSPACE: &str = "agent-workspace/workspace";
/// The forward proxy that its pod uses, as HOST:PORT. Empty: none.
pub(crate) const PROXY: &str = "agent-workspace/proxy";
/// The intent for a plain pod: `running` or `stopped`. A `Sandbox` has its own.
pub(crate) const DESIRED: &str = "agent-workspace/desired";
/// The pod that the last start found.
pub(crate) const POD_UID: &str = "agent-workspace/pod-uid";
pub(crate) const POD_IP: &str = "agent-workspace/pod-ip";

pub(crate) type Texts = BTreeMap<String, String>;

/// Names of the objects of one installation.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    instance: HostId,
    /// The value of [`INSTANCE`].
    label: String,
}

impl Names {
    pub(crate) fn new(instance: &HostId) -> Self {
        Self {
            instance: instance.clone(),
            label: digest(&[instance.as_str()]),
        }
    }

    /// The name of a sandbox's claim, Secret, `Sandbox` and pod. Names of objects are lower case, and ids are not: two ids
    /// that differ by case only must not meet.
    pub(crate) fn of(&self, id: &SandboxId) -> String {
        format!("aw-{}", digest(&[self.instance.as_str(), id.as_str()]))
    }

    /// Selects all objects of the installation.
    pub(crate) fn selector(&self) -> String {
        format!("{INSTANCE}={}", self.label)
    }

    /// Labels of an object.
    pub(crate) fn labels(&self, name: &str) -> Texts {
        let all = [
            (INSTANCE, self.label.as_str()),
            (NAME, name),
            (MANAGED_BY, MANAGER),
        ];
        texts(all)
    }

    /// The sandbox of an object, if it is the installation's own: label, annotation and name must agree.
    pub(crate) fn sandbox(&self, meta: &ObjectMeta) -> Option<SandboxId> {
        let label = meta.labels.as_ref()?.get(INSTANCE)?;
        let id = SandboxId::parse(text(meta, SANDBOX)?).ok()?;
        let is_own = *label == self.label && meta.name.as_deref() == Some(&self.of(&id));
        is_own.then_some(id)
    }
}

/// 128 bits as hex digits.
fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
        // Separates "a","bc" from "ab","c".
        hash.update([0]);
    }
    format!("{:.32x}", hash.finalize())
}

pub(crate) fn texts<const N: usize>(pairs: [(&str, &str); N]) -> Texts {
    let pairs = pairs.into_iter();
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// An annotation.
pub(crate) fn text<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_and_tell_ids_apart() {
        let names = |host: &str| Names::new(&HostId::parse(host).unwrap());
        let id = |text: &str| SandboxId::parse(text).unwrap();
        let one = names("host").of(&id("aB"));
        assert_eq!(one.len(), 35);
        assert!(
            one.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        );
        assert_ne!(one, names("host").of(&id("Ab")));
        assert_ne!(one, names("other").of(&id("aB")));
        assert_eq!(one, names("host").of(&id("aB")));
    }

    #[test]
    fn an_object_is_ours_if_label_annotation_and_name_agree() {
        let names = Names::new(&HostId::parse("host").unwrap());
        let id = SandboxId::parse("s1").unwrap();
        let name = names.of(&id);
        let meta = ObjectMeta {
            name: Some(name.clone()),
            labels: Some(names.labels(&name)),
            annotations: Some(texts([(SANDBOX, "s1")])),
            ..ObjectMeta::default()
        };
        assert_eq!(names.sandbox(&meta), Some(id));
        let changes: [fn(&mut ObjectMeta); 4] = [
            |meta| meta.name = Some("aw-1".to_owned()),
            |meta| meta.labels = None,
            |meta| meta.annotations = Some(texts([(SANDBOX, "s2")])),
            |meta| meta.annotations = None,
        ];
        for change in changes {
            let mut other = meta.clone();
            change(&mut other);
            assert_eq!(names.sandbox(&other), None, "{other:?}");
        }
        let elsewhere = Names::new(&HostId::parse("other").unwrap());
        assert_eq!(elsewhere.sandbox(&meta), None);
    }
}
