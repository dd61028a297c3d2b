//! What an API server refuses: unknown fields with strict validation, and values that a schema does not allow.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodSpec, Secret};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::errors::ApiError;
use crate::kind::Kind;

/// Checks values, also those that a patch makes.
pub(crate) fn check(kind: Kind, object: &Value) -> Result<(), ApiError> {
    if kind != Kind::Sandbox {
        return Ok(());
    }
    let spec = &object["spec"];
    if spec["podTemplate"]["spec"]["containers"]
        .as_array()
        .is_none_or(Vec::is_empty)
    {
        return Err(ApiError::invalid(
            "spec.podTemplate.spec.containers: Required value",
        ));
    }
    match spec["operatingMode"].as_str() {
        None | Some("Running" | "Suspended") => Ok(()),
        Some(_) => Err(ApiError::invalid("spec.operatingMode: Unsupported value")),
    }
}

/// Refuses fields that the type of an object does not have.
pub(crate) fn check_strictly(kind: Kind, object: &Value) -> Result<(), ApiError> {
    match kind {
        Kind::Pod => is_kept::<Pod>(object, "Pod"),
        Kind::Claim => is_kept::<PersistentVolumeClaim>(object, "PersistentVolumeClaim"),
        Kind::Secret => is_kept::<Secret>(object, "Secret"),
        Kind::Event => Ok(()),
        Kind::Sandbox => {
            let known = [
                "podTemplate",
                "volumeClaimTemplates",
                "service",
                "operatingMode",
                "shutdownTime",
                "shutdownPolicy",
            ];
            let members = object["spec"].as_object().into_iter().flatten();
            for (name, _) in members {
                if !known.contains(&name.as_str()) {
                    return Err(unknown_field(&format!("spec.{name}")));
                }
            }
            is_kept::<PodSpec>(&object["spec"]["podTemplate"]["spec"], "PodSpec")
        }
    }
}

/// Whether the type keeps every field.
fn is_kept<T: DeserializeOwned + Serialize>(object: &Value, name: &str) -> Result<(), ApiError> {
    let typed: T = serde_json::from_value(object.clone())
        .map_err(|error| ApiError::bad_request(format!("{name} cannot be decoded: {error}")))?;
    let kept = serde_json::to_value(typed).unwrap_or_default();
    match lost(object, &kept, name) {
        Some(path) => Err(unknown_field(&path)),
        None => Ok(()),
    }
}

fn lost(sent: &Value, kept: &Value, path: &str) -> Option<String> {
    match (sent, kept) {
        (Value::Object(sent), _) => sent.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            match kept.get(key) {
                Some(kept) => lost(value, kept, &path),
                None if value.as_array().is_some_and(Vec::is_empty) => None,
                None => Some(path),
            }
        }),
        (Value::Array(sent), Value::Array(kept)) => {
            let mut pairs = sent.iter().zip(kept);
            pairs.find_map(|(sent, kept)| lost(sent, kept, path))
        }
        _ => None,
    }
}

fn unknown_field(path: &str) -> ApiError {
    ApiError::bad_request(format!("strict decoding error: unknown field \"{path}\""))
}
