//! Reads the disk usage of all containers and volumes in one call.

use std::collections::HashMap;
use std::time::Duration;

use bollard::errors::Error as ClientError;
use futures::TryStreamExt;
use serde::Deserialize;

use crate::engine::Engine;
use crate::engine::errors::EngineError;

/// The engine walks through every volume, which takes minutes with millions of files.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// Larger than any realistic response.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
const QUERY: &str = "/system/df?type=container&type=volume&verbose=true";

/// The response. Engines before API 1.52 fill the first two fields, newer ones the others.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct DiskUsage {
    containers: Option<Vec<UsageItem>>,
    volumes: Option<Vec<UsageItem>>,
    #[serde(rename = "ContainerUsage")]
    newer_containers: UsageItems,
    #[serde(rename = "VolumeUsage")]
    newer_volumes: UsageItems,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct UsageItems {
    items: Option<Vec<UsageItem>>,
}

/// A container (with a list of names) or a volume.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct UsageItem {
    name: Option<String>,
    names: Option<Vec<String>>,
    size_rw: Option<i64>,
    usage_data: Option<UsageData>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct UsageData {
    size: i64,
}

impl DiskUsage {
    /// Bytes by name, the container and the volume of one name together. (Not every engine includes labels here.)
    pub(super) fn by_name(&self) -> HashMap<&str, u64> {
        let lists = [
            &self.containers,
            &self.volumes,
            &self.newer_containers.items,
            &self.newer_volumes.items,
        ];
        let mut bytes = HashMap::new();
        for item in lists.into_iter().flatten().flatten() {
            let name = item.names.iter().flatten().chain(&item.name).next();
            if let Some(name) = name {
                let name = name.trim_start_matches('/');
                *bytes.entry(name).or_default() += item.bytes();
            }
        }
        bytes
    }
}

impl UsageItem {
    /// Unknown sizes (-1) count as zero.
    fn bytes(&self) -> u64 {
        let usage = self.usage_data.as_ref().map(|usage| usage.size);
        [self.size_rw, usage]
            .into_iter()
            .flatten()
            .filter_map(|bytes| u64::try_from(bytes).ok())
            .sum()
    }
}

pub(super) async fn measure(engine: &Engine) -> Result<DiskUsage, EngineError> {
    const OPERATION: &str = "measuring disk usage";
    let usage = engine.call_within(OPERATION, MEASURE_TIMEOUT, |docker| {
        // bollard's own `df` understands only engines since API 1.52. This call gives access to the raw bytes of the
        // response.
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
                if bytes.len() + part.len() > MAX_RESPONSE_BYTES {
                    return Err(std::io::Error::other(
                        "the engine's response is longer than 64 MiB",
                    )
                    .into());
                }
                bytes.extend_from_slice(&part);
            }
            serde_json::from_slice(&bytes).map_err(ClientError::from)
        }
    });
    usage.await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(json: &str) -> HashMap<String, u64> {
        let usage: DiskUsage = serde_json::from_str(json).expect("a valid response");
        let bytes = usage.by_name().into_iter();
        bytes
            .map(|(name, bytes)| (name.to_owned(), bytes))
            .collect()
    }

    #[test]
    fn usage_of_container_and_volume_is_added_up() {
        let json = r#"{"LayersSize":7,"Images":null,"BuildCache":[],"Containers":[
                {"Id":"1","Names":["/a"],"Labels":{"x":"y"},"SizeRw":10,"SizeRootFs":99},
                {"Id":"2","Names":["b"],"SizeRootFs":99},
                {"Id":"3","Names":null,"SizeRw":1000}],
            "Volumes":[
                {"Name":"a","Labels":null,"UsageData":{"RefCount":1,"Size":5}},
                {"Name":"b","UsageData":{"RefCount":1,"Size":-1}},
                {"Name":"c","UsageData":null}]}"#;
        let expected = [("a", 15), ("b", 0), ("c", 0)];
        let expected = expected.map(|(name, bytes)| (name.to_owned(), bytes));
        assert_eq!(measured(json), expected.into());
    }

    #[test]
    fn responses_of_newer_engines_are_parsed() {
        let json = r#"{"ContainerUsage":{"TotalSize":10,"Items":[{"Names":["/a"],"SizeRw":10}]},
            "VolumeUsage":{"Items":[{"Name":"a","UsageData":{"RefCount":1,"Size":5}}]}}"#;
        assert_eq!(measured(json), [("a".to_owned(), 15)].into());
    }
}
