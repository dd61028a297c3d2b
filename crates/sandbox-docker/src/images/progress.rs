//! Aggregates the progress of a pull over its layers.

use std::collections::BTreeMap;

use bollard::models::CreateImageInfo;

const MIB: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct PullProgress(BTreeMap<String, LayerProgress>);

#[derive(Debug, Default, PartialEq)]
struct LayerProgress {
    stage: LayerStage,
    fetched: u64,
    /// Total bytes, once the engine knows them.
    size: Option<u64>,
    unpacked: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LayerStage {
    #[default]
    Known,
    Fetching,
    Fetched,
    Unpacking,
    Done,
}

impl PullProgress {
    /// Records an update. Returns whether there was progress: an engine that retries also sends updates.
    pub(super) fn update(&mut self, info: &CreateImageInfo) -> bool {
        let (Some(id), Some(status)) = (&info.id, &info.status) else {
            // About the image as a whole, e.g. its digest.
            return info.status.is_some();
        };
        let detail = info.progress_detail.as_ref();
        let number = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
        let current = number(detail.and_then(|detail| detail.current)).unwrap_or_default();
        let total = number(detail.and_then(|detail| detail.total)).filter(|total| *total > 0);
        let stage = match status.as_str() {
            "Pulling fs layer" | "Waiting" => LayerStage::Known,
            "Downloading" => LayerStage::Fetching,
            "Verifying Checksum" | "Download complete" => LayerStage::Fetched,
            "Extracting" => LayerStage::Unpacking,
            "Pull complete" | "Already exists" => LayerStage::Done,
            // "Pulling from library/busybox" has a tag instead of a layer id.
            other => return !other.starts_with("Retrying"),
        };
        let is_new = !self.0.contains_key(id);
        let layer = self.0.entry(id.clone()).or_default();
        let former = (layer.stage, layer.fetched, layer.unpacked);
        layer.stage = stage;
        match stage {
            LayerStage::Known => {}
            LayerStage::Fetching => {
                layer.fetched = current;
                layer.size = total.or(layer.size);
            }
            LayerStage::Unpacking => layer.unpacked = current,
            LayerStage::Fetched | LayerStage::Done => {
                layer.fetched = layer.size.unwrap_or(layer.fetched);
            }
        }
        is_new || former != (layer.stage, layer.fetched, layer.unpacked)
    }

    pub(super) fn line(&self, image: &str) -> String {
        let layers = self.0.values();
        let count = layers.len();
        if count == 0 {
            return format!("pulling {image}");
        }
        let completed = layers
            .clone()
            .filter(|layer| layer.stage == LayerStage::Done)
            .count();
        let fetched: u64 = layers.clone().map(|layer| layer.fetched).sum();
        // Layers that already exist, and those that wait, have no size.
        let is_complete = layers.clone().all(|layer| layer.stage != LayerStage::Known);
        let size: u64 = layers.filter_map(|layer| layer.size).sum();
        let fetched = fetched.div_ceil(MIB);
        if is_complete && size > 0 {
            let size = size.div_ceil(MIB);
            format!("pulling {image}: {completed} of {count} layers, {fetched} of {size} MiB")
        } else {
            format!("pulling {image}: {completed} of {count} layers, {fetched} MiB")
        }
    }
}

#[cfg(test)]
mod tests {
    use bollard::models::ProgressDetail;

    use super::*;

    fn update(
        layers: &mut PullProgress,
        id: &str,
        status: &str,
        detail: Option<(i64, i64)>,
    ) -> bool {
        layers.update(&CreateImageInfo {
            id: Some(id.to_owned()),
            status: Some(status.to_owned()),
            progress_detail: detail.map(|(current, total)| ProgressDetail {
                current: Some(current),
                total: Some(total),
            }),
            error_detail: None,
        })
    }

    #[test]
    fn progress_is_reported_in_layers_and_bytes() {
        let mut layers = PullProgress::default();
        let mebi = |count: i64| count << 20;
        assert_eq!(layers.line("x:1"), "pulling x:1");
        update(&mut layers, "1", "Pulling from x", None);
        assert_eq!(layers.line("x:1"), "pulling x:1");
        for layer in ["a", "b", "c"] {
            update(&mut layers, layer, "Pulling fs layer", None);
        }
        update(&mut layers, "a", "Downloading", Some((mebi(3), mebi(10))));
        assert_eq!(layers.line("x:1"), "pulling x:1: 0 of 3 layers, 3 MiB");
        update(&mut layers, "b", "Downloading", Some((mebi(1), mebi(20))));
        update(&mut layers, "c", "Already exists", None);
        let line = layers.line("x:1");
        assert_eq!(line, "pulling x:1: 1 of 3 layers, 4 of 30 MiB");
        update(&mut layers, "a", "Download complete", None);
        update(&mut layers, "a", "Extracting", Some((mebi(40), mebi(50))));
        update(&mut layers, "a", "Pull complete", None);
        let line = layers.line("x:1");
        assert_eq!(line, "pulling x:1: 2 of 3 layers, 11 of 30 MiB");
    }

    #[test]
    fn retries_and_repetitions_do_not_count_as_progress() {
        let mut layers = PullProgress::default();
        assert!(update(&mut layers, "a", "Pulling fs layer", None));
        assert!(update(&mut layers, "a", "Downloading", Some((5, 10))));
        assert!(!update(&mut layers, "a", "Downloading", Some((5, 10))));
        assert!(!update(&mut layers, "a", "Retrying in 5 seconds", None));
        assert!(update(&mut layers, "a", "Downloading", Some((6, 10))));
        assert!(update(&mut layers, "a", "Download complete", None));
        assert!(update(&mut layers, "a", "Extracting", Some((1, 10))));
        assert!(update(&mut layers, "a", "Extracting", Some((2, 10))));
        assert!(!update(&mut layers, "a", "Extracting", Some((2, 10))));
    }
}
