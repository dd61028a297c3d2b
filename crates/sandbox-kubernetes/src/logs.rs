//! The log of a pod: its end, and optionally what follows.
//!
//! Knows: a followed log may end at its rotation, or at the limit of a proxy, while the pod runs. A log goes with its pod.

use std::pin::Pin;
use std::time::Duration;

use domain::id::SandboxId;
use domain::sandbox::{LogMask, LogStream, LogTail, SandboxError};
use futures::io::{AsyncBufRead, AsyncBufReadExt as _};
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::LogParams;
use secrecy::SecretString;
use tokio::time::timeout;

use crate::backend::KubernetesInner;
use crate::cluster::Cluster;
use crate::errors::ClusterError;
use crate::manifest::CONTAINER;
use crate::state::{PodPhase, phase};

const OPERATION: &str = "reading the log";
/// Lines that a description of an end quotes from, and their bytes.
const QUOTED_LINES: i64 = 60;
const MAX_QUOTED_BYTES: i64 = 512 * 1024;
/// Pieces of a stream of a log.
const MAX_PIECE_BYTES: usize = 64 * 1024;
const MAX_LINE_BYTES: u64 = 1 << 20;

impl KubernetesInner {
    /// The last lines of a pod's log, without keys. Empty if there are none: the cause is reported anyway.
    pub(crate) async fn quote_log(&self, pod: &Pod) -> String {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let end = LogParams {
            container: Some(CONTAINER.to_owned()),
            tail_lines: Some(QUOTED_LINES),
            limit_bytes: Some(MAX_QUOTED_BYTES),
            ..LogParams::default()
        };
        let log = self
            .cluster
            .call(OPERATION, || self.cluster.pods.logs(name, &end));
        let text: Result<String, ClusterError> = log.await;
        sandbox_provider::quote_log(&text.unwrap_or_default(), &self.config.secret_values(), &[])
    }

    /// See [`SandboxReader::logs`](domain::sandbox::SandboxReader::logs). Empty without a pod.
    pub(crate) async fn logs(
        &self,
        id: &SandboxId,
        keys: &[SecretString],
        tail: LogTail,
    ) -> Result<LogStream, SandboxError> {
        let found = self.look_at(id).await?;
        if found.state().is_none() {
            return Err(SandboxError::NotFound);
        }
        let Some(pod) = found.pod else {
            return Ok(stream::empty().boxed());
        };
        let source = LogSource {
            cluster: self.cluster.clone(),
            uid: pod.metadata.uid.unwrap_or_default(),
            name: pod.metadata.name.unwrap_or_default(),
            tail,
            limit: self.config.call_limit,
        };
        let reader = PodLogReader {
            lines: Some(source.open(None).await?),
            source,
            last: None,
            mask: LogMask::new(&[self.config.secret_values(), keys.to_vec()].concat()),
        };
        Ok(stream::unfold(Some(reader), |reader| async {
            let mut reader = reader?;
            match reader.next().await {
                Ok(Some(lines)) => Some((Ok(lines), Some(reader))),
                Ok(None) => {
                    let rest = reader.mask.finish();
                    (!rest.is_empty()).then_some((Ok(rest), None))
                }
                Err(error) => Some((Err(error.into()), None)),
            }
        })
        .boxed())
    }
}

type LogLines = Pin<Box<dyn AsyncBufRead + Send>>;

/// The log of one pod.
struct LogSource {
    cluster: Cluster,
    name: String,
    uid: String,
    tail: LogTail,
    /// Time for the next part of a log that is not followed.
    limit: Duration,
}

/// The state of one reader.
struct PodLogReader {
    source: LogSource,
    /// `None` after the end of the stream.
    lines: Option<LogLines>,
    /// When the last line was written.
    last: Option<Timestamp>,
    mask: LogMask,
}

impl LogSource {
    /// The lines since a time, or the last ones.
    async fn open(&self, since: Option<Timestamp>) -> Result<LogLines, ClusterError> {
        let tail = i64::from(self.tail.lines);
        let params = LogParams {
            container: Some(CONTAINER.to_owned()),
            follow: self.tail.follow,
            tail_lines: since.is_none().then_some(tail),
            since_time: since,
            timestamps: true,
            ..LogParams::default()
        };
        let opened = self.cluster.call(OPERATION, || async {
            let lines = self.cluster.pods.log_stream(&self.name, &params).await?;
            Ok(Box::pin(lines) as LogLines)
        });
        opened.await
    }

    async fn still_runs(&self) -> Result<bool, ClusterError> {
        let pod = self.cluster.pod(&self.name).await?;
        Ok(pod.is_some_and(|pod| {
            pod.metadata.uid.as_deref() == Some(&*self.uid) && phase(&pod) == PodPhase::Runs
        }))
    }
}

impl PodLogReader {
    /// The next lines. `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, ClusterError> {
        loop {
            let Some(lines) = &mut self.lines else {
                return Ok(None);
            };
            let mut line = Vec::new();
            let read = read_line(lines, &mut line);
            // A followed log may be silent for any time.
            let read = if self.source.tail.follow {
                read.await
            } else {
                let read = timeout(self.source.limit, read).await;
                read.map_err(|_| ClusterError::timed_out(OPERATION))?
            };
            if read.unwrap_or_default() == 0 {
                self.lines = None;
                if self.source.tail.follow && self.source.still_runs().await? {
                    self.lines = Some(self.source.open(self.last).await?);
                }
                continue;
            }
            let (time, text) = split_time(&line);
            if time.is_some() && time <= self.last {
                // It was read before the log was opened again.
                continue;
            }
            self.last = time.or(self.last);
            let out = self.mask.push(text);
            if !out.is_empty() {
                return Ok(Some(out));
            }
        }
    }
}

/// Reads to the end of a line, or a part of a very long one.
async fn read_line(lines: &mut LogLines, line: &mut Vec<u8>) -> std::io::Result<usize> {
    loop {
        let available = lines.fill_buf().await?;
        let end = available.iter().position(|byte| *byte == b'\n');
        let take = end
            .map_or(available.len(), |end| end + 1)
            .min(MAX_PIECE_BYTES);
        line.extend_from_slice(&available[..take]);
        lines.as_mut().consume(take);
        if take == 0 || end.is_some() || line.len() as u64 >= MAX_LINE_BYTES {
            return Ok(line.len());
        }
    }
}

/// The time before a line, and the line.
fn split_time(line: &[u8]) -> (Option<Timestamp>, &[u8]) {
    let end = line.iter().position(|byte| *byte == b' ');
    let time = end.and_then(|end| std::str::from_utf8(&line[..end]).ok()?.parse().ok());
    match (time, end) {
        (Some(time), Some(end)) => (Some(time), &line[end + 1..]),
        _ => (None, line),
    }
}
