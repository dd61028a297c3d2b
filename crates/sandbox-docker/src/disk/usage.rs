//! How much every container and volume takes, in one call.

use std::collections::HashMap;
use std::time::Duration;

use bollard::errors::Error as ClientError;
use domain::id::{HostId, SandboxId};
use futures::TryStreamExt;
use serde::Deserialize;

use crate::engine::Engine;
use crate::errors::EngineError;
use crate::labels::{self, Labels};

/// The engine walks through every volume for this, which takes minutes where there are millions of files.
const LIMIT: Duration = Duration::from_secs(5 * 60);
/// No engine has so many containers and volumes.
const MAX_ANSWER: usize = 64 << 20;
const QUERY: &str = "/system/df?type=container&type=volume&verbose=true";

/// What the engine measured. Engines before API 1.52 have the first two, newer ones the others.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Usage {
    containers: Option<Vec<Item>>,
    volumes: Option<Vec<Item>>,
    #[serde(rename = "ContainerUsage")]
    newer_containers: Items,
    #[serde(rename = "VolumeUsage")]
    newer_volumes: Items,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Items {
    items: Option<Vec<Item>>,
}

/// A container (which has several names) or a volume.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Item {
    name: Option<String>,
    names: Option<Vec<String>>,
    labels: Option<Labels>,
    size_rw: Option<i64>,
    usage_data: Option<UsageData>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct UsageData {
    size: i64,
}

impl Usage {
    /// Bytes that the containers and volumes of our sandboxes take.
    pub(super) fn by_sandbox(&self, instance: &HostId) -> HashMap<SandboxId, u64> {
        let lists = [
            &self.containers,
            &self.volumes,
            &self.newer_containers.items,
            &self.newer_volumes.items,
        ];
        let mut bytes = HashMap::new();
        for item in lists.into_iter().flatten().flatten() {
            let names = item.names.iter().flatten().chain(&item.name);
            let labels = item.labels.as_ref();
            let id = labels.and_then(|labels| {
                let mut ids = names.filter_map(|name| labels::sandbox(instance, name, labels));
                ids.next()
            });
            if let Some(id) = id {
                *bytes.entry(id).or_default() += item.bytes();
            }
        }
        bytes
    }
}

impl Item {
    /// What is not known (-1) counts for nothing.
    fn bytes(&self) -> u64 {
        let usage = self.usage_data.as_ref().map(|usage| usage.size);
        [self.size_rw, usage]
            .into_iter()
            .flatten()
            .filter_map(|bytes| u64::try_from(bytes).ok())
            .sum()
    }
}

/// Asks the engine to measure.
pub(super) async fn measure(engine: &Engine) -> Result<Usage, EngineError> {
    const WHAT: &str = "measuring disk usage";
    let answer = engine.call_within(WHAT, LIMIT, |docker| {
        // The client's own `df` reads only what engines since API 1.52 answer. Of its calls this one gives the bytes as
        // they come; all that is taken from it is the transport.
        let docker = docker.clone().with_request_modifier(|mut request| {
            let uri = request.uri().to_string();
            let measured = uri.replacen("/images/usage/get", QUERY, 1).parse();
            if let Ok(uri) = measured {
                *request.uri_mut() = uri;
            }
            request
        });
        async move {
            let mut bytes = Vec::new();
            let mut parts = std::pin::pin!(docker.export_image("usage"));
            while let Some(part) = parts.try_next().await? {
                if bytes.len() + part.len() > MAX_ANSWER {
                    return Err(std::io::Error::other("the answer is too long").into());
                }
                bytes.extend_from_slice(&part);
            }
            serde_json::from_slice(&bytes).map_err(ClientError::from)
        }
    });
    answer.await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(json: &str) -> Vec<(String, u64)> {
        let usage: Usage = serde_json::from_str(json).expect("an answer is read");
        let instance = HostId::parse("me").expect("an id");
        let bytes = usage.by_sandbox(&instance).into_iter();
        let mut bytes: Vec<_> = bytes.map(|(id, bytes)| (id.to_string(), bytes)).collect();
        bytes.sort();
        bytes
    }

    const OF_A: &str = r#"{"agent-workspace.instance":"me","agent-workspace.sandbox":"a"}"#;

    #[test]
    fn a_sandbox_takes_its_container_and_its_volume() {
        let json = r#"{"LayersSize":7,"Images":null,"BuildCache":[],"Containers":[
                {"Id":"1","Names":["/agent-workspace-a"],"Labels":OF_A,"SizeRw":10,"SizeRootFs":99},
                {"Id":"2","Names":["/made-of-it"],"Labels":OF_A,"SizeRw":1000},
                {"Id":"3","Names":["/agent-workspace-b"],"Labels":null,"SizeRw":1000},
                {"Id":"4","Names":null,"SizeRootFs":99}],
            "Volumes":[
                {"Name":"agent-workspace-a","Labels":OF_A,"UsageData":{"RefCount":1,"Size":5}},
                {"Name":"agent-workspace-a","Labels":OF_A,"UsageData":{"RefCount":1,"Size":-1}},
                {"Name":"z","Labels":null,"UsageData":null}]}"#;
        let expected = [("a".to_owned(), 15)];
        assert_eq!(measured(&json.replace("OF_A", OF_A)), expected);
    }

    #[test]
    fn newer_engines_answer_in_another_shape() {
        let json = r#"{"ContainerUsage":{"TotalSize":10,"Items":[
                {"Names":["/agent-workspace-a"],"Labels":OF_A,"SizeRw":10}]},
            "VolumeUsage":{"Items":[
                {"Name":"agent-workspace-a","Labels":OF_A,"UsageData":{"RefCount":1,"Size":5}}]}}"#;
        let expected = [("a".to_owned(), 15)];
        assert_eq!(measured(&json.replace("OF_A", OF_A)), expected);
    }
}
