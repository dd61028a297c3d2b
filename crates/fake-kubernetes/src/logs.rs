//! Logs of pods.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use crate::store::timestamp;

/// Lines of pods by their uid, each with its time.
#[derive(Debug, Default)]
pub(crate) struct PodLogs(BTreeMap<String, Vec<(Timestamp, String)>>);

impl PodLogs {
    pub(crate) fn write(&mut self, pod: &serde_json::Value, line: &str) {
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        let lines = self.0.entry(uid.to_owned()).or_default();
        lines.push((timestamp(), line.to_owned()));
    }

    /// The lines of a pod from this index on, with the index after them.
    pub(crate) fn read(&self, uid: &str, from: usize, with_times: bool) -> (String, usize) {
        let lines = self.0.get(uid).map(Vec::as_slice).unwrap_or_default();
        let text = lines.iter().skip(from).map(|(time, line)| {
            if with_times {
                format!("{time} {line}\n")
            } else {
                format!("{line}\n")
            }
        });
        (text.collect(), lines.len())
    }

    /// The index of the first of the last lines.
    pub(crate) fn tail(&self, uid: &str, count: Option<usize>) -> usize {
        let all = self.0.get(uid).map_or(0, Vec::len);
        count.map_or(0, |count| all.saturating_sub(count))
    }
}
