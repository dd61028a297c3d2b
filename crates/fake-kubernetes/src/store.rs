//! The objects, their revisions and their history.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::time::SystemTime;

use k8s_openapi::jiff::{Timestamp, Unit};
use serde_json::{Value, json};

use crate::errors::ApiError;
use crate::kind::Kind;
use crate::validation;

/// Changes that a watch can catch up with.
const MAX_HISTORY: usize = 10_000;
/// Keeps an object until the garbage collector has deleted what depends on it.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// An object by kind and name. There is one namespace.
pub(crate) type ObjectKey = (Kind, String);

#[derive(Debug, Clone)]
pub(crate) struct StoredChange {
    pub(crate) revision: u64,
    pub(crate) kind: Kind,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub(crate) event: &'static str,
    pub(crate) object: Value,
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    objects: BTreeMap<ObjectKey, Value>,
    /// By the owner or claim that they name.
    dependents: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// What controllers have to look at: something about it has changed.
    to_control: BTreeSet<ObjectKey>,
    pub(crate) revision: u64,
    history: VecDeque<StoredChange>,
    /// Versions up to this one are too old for a watch.
    compacted: u64,
}

impl Store {
    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.objects.get(&(kind, name.to_owned()))
    }

    pub(crate) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        let from = self.objects.range((kind, String::new())..);
        let of_kind = from.take_while(move |((it, _), _)| *it == kind);
        of_kind.map(|(_, object)| object)
    }

    /// Objects whose owner or claim is this one.
    pub(crate) fn dependents(&self, key: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.dependents.get(key).into_iter().flatten()
    }

    /// Whether an object names no owner, or one that is there.
    pub(crate) fn has_owner(&self, object: &Value) -> bool {
        owner(object).is_none_or(|(kind, name)| {
            let owner = self.get(kind, &name);
            let uid = &object["metadata"]["ownerReferences"][0]["uid"];
            owner.is_some_and(|owner| owner["metadata"]["uid"] == *uid)
        })
    }

    pub(crate) fn take_to_control(&mut self) -> BTreeSet<ObjectKey> {
        mem::take(&mut self.to_control)
    }

    /// Lets controllers look at everything.
    pub(crate) fn control_all(&mut self) {
        self.to_control = self.objects.keys().cloned().collect();
    }

    /// Creates an object; the caller has checked what it contains.
    pub(crate) fn create(&mut self, kind: Kind, mut object: Value) -> Result<Value, ApiError> {
        let name = object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if name.is_empty() {
            return Err(ApiError::invalid("metadata.name: Required value"));
        }
        if self.get(kind, &name).is_some() {
            return Err(ApiError::exists(&format!("{} \"{name}\"", kind.plural())));
        }
        validation::check(kind, &object)?;
        let meta = &mut object["metadata"];
        meta["uid"] = json!(format!("uid-{}", self.revision + 1));
        meta["creationTimestamp"] = json!(now());
        meta["generation"] = json!(1);
        if kind == Kind::Pod {
            object["status"] = json!({"phase": "Pending"});
        }
        Ok(self.write((kind, name), object, "ADDED"))
    }

    /// Replaces an object. Its generation grows with its `spec` alone.
    pub(crate) fn replace(&mut self, kind: Kind, mut object: Value) -> Value {
        let name = object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let former = self.get(kind, &name).cloned().unwrap_or_default();
        if former == object {
            return object;
        }
        if former["spec"] != object["spec"] {
            let generation = former["metadata"]["generation"]
                .as_i64()
                .unwrap_or_default();
            object["metadata"]["generation"] = json!(generation + 1);
        }
        self.write((kind, name), object, "MODIFIED")
    }

    /// A merge patch (RFC 7386), if the version that it names is the current one.
    pub(crate) fn merge(
        &mut self,
        kind: Kind,
        name: &str,
        patch: &Value,
    ) -> Result<Value, ApiError> {
        let what = format!("{} \"{name}\"", kind.plural());
        let mut object = self
            .get(kind, name)
            .cloned()
            .ok_or_else(|| ApiError::not_found(&what))?;
        let expected = &patch["metadata"]["resourceVersion"];
        if !expected.is_null() && *expected != object["metadata"]["resourceVersion"] {
            return Err(ApiError::conflict(&what));
        }
        merge(&mut object, patch);
        validation::check(kind, &object)?;
        Ok(self.replace(kind, object))
    }

    /// A server-side apply of one manager that owns all that it sends.
    pub(crate) fn apply(
        &mut self,
        kind: Kind,
        name: &str,
        object: Value,
    ) -> Result<Value, ApiError> {
        if self.get(kind, name).is_none() {
            return self.create(kind, object);
        }
        let mut change = object;
        // What the manager no longer sends goes.
        if let Some(former) = self.get(kind, name)
            && let (Some(data), Some(sent)) =
                (former["data"].as_object(), change["data"].as_object_mut())
        {
            for key in data.keys() {
                sent.entry(key.clone()).or_insert(Value::Null);
            }
        }
        self.merge(kind, name, &change)
    }

    /// Marks an object as leaving, with this finalizer if there is one.
    pub(crate) fn mark_deleted(&mut self, kind: Kind, name: &str, finalizer: Option<&str>) {
        let Some(mut object) = self.get(kind, name).cloned() else {
            return;
        };
        let meta = &mut object["metadata"];
        if meta["deletionTimestamp"].is_null() {
            meta["deletionTimestamp"] = json!(now());
            if let Some(finalizer) = finalizer {
                meta["finalizers"] = json!([finalizer]);
            }
            self.replace(kind, object);
        }
    }

    pub(crate) fn remove(&mut self, kind: Kind, name: &str) {
        let key = (kind, name.to_owned());
        let Some(object) = self.objects.remove(&key) else {
            return;
        };
        for target in references(&object) {
            if let Some(all) = self.dependents.get_mut(&target) {
                all.remove(&key);
                if all.is_empty() {
                    self.dependents.remove(&target);
                }
            }
        }
        self.control(&key, &object);
        self.record(kind, object, "DELETED");
    }

    /// Changes after a version. `None` if it is too old.
    pub(crate) fn since(&self, revision: u64) -> Option<impl Iterator<Item = &StoredChange>> {
        let is_known = revision >= self.compacted;
        is_known.then(|| {
            let from = self.history.partition_point(|it| it.revision <= revision);
            self.history.range(from..)
        })
    }

    pub(crate) fn compact(&mut self) {
        // A version of its own, so that also a watch of the last one is too old.
        self.revision += 1;
        self.compacted = self.revision;
        self.history.clear();
    }

    fn write(&mut self, key: ObjectKey, object: Value, event: &'static str) -> Value {
        let object = self.record(key.0, object, event);
        for target in references(&object) {
            self.dependents
                .entry(target)
                .or_default()
                .insert(key.clone());
        }
        self.control(&key, &object);
        self.objects.insert(key, object.clone());
        object
    }

    /// Notes a change of an object, which concerns also what it names and what names it.
    fn control(&mut self, key: &ObjectKey, object: &Value) {
        self.to_control.insert(key.clone());
        self.to_control.extend(references(object));
        let dependents = self.dependents.get(key).into_iter().flatten();
        self.to_control.extend(dependents.cloned());
    }

    fn record(&mut self, kind: Kind, mut object: Value, event: &'static str) -> Value {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.history.push_back(StoredChange {
            revision: self.revision,
            kind,
            event,
            object: object.clone(),
        });
        if self.history.len() > MAX_HISTORY
            && let Some(oldest) = self.history.pop_front()
        {
            self.compacted = oldest.revision;
        }
        object
    }
}

fn owner(object: &Value) -> Option<ObjectKey> {
    let owner = &object["metadata"]["ownerReferences"][0];
    Some((
        Kind::of_name(&owner["kind"])?,
        owner["name"].as_str()?.to_owned(),
    ))
}

/// The owner of an object, and the claims of a pod.
fn references(object: &Value) -> impl Iterator<Item = ObjectKey> {
    let volumes = object["spec"]["volumes"].as_array().into_iter().flatten();
    let claims = volumes.filter_map(|volume| {
        let name = volume["persistentVolumeClaim"]["claimName"].as_str()?;
        Some((Kind::Claim, name.to_owned()))
    });
    owner(object).into_iter().chain(claims)
}

/// The time, to the microsecond. `Timestamp::now` exists only if another crate asks for a feature.
pub(crate) fn timestamp() -> Timestamp {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let since = i64::try_from(since.as_micros()).unwrap_or_default();
    Timestamp::from_microsecond(since).unwrap_or_default()
}

pub(crate) fn now() -> String {
    let now = timestamp().round(Unit::Second);
    now.unwrap_or_default().to_string()
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(members) = patch.as_object() else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in members {
        if value.is_null() {
            target.as_object_mut().and_then(|it| it.shift_remove(key));
        } else {
            merge(&mut target[key.as_str()], value);
        }
    }
}
