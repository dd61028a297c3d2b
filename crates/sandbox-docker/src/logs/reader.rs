//! Reads the log of a container: its end, and optionally what follows.

use std::pin::Pin;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::query_parameters::LogsOptionsBuilder;
use domain::id::SandboxId;
use domain::sandbox::{LogMask, LogStream, LogTail, SandboxError};
use futures::Stream;
use futures::stream::{self, StreamExt};
use secrecy::SecretString;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use crate::backend::DockerInner;
use crate::engine::errors::{EngineError, EngineErrorKind};
use crate::lifecycle::ownership::Ownership;

const OPERATION: &str = "reading the log";

impl DockerInner {
    /// See [`SandboxReader::logs`](domain::sandbox::SandboxReader::logs).
    pub(crate) async fn logs(
        &self,
        id: &SandboxId,
        keys: &[SecretString],
        tail: LogTail,
    ) -> Result<LogStream, SandboxError> {
        let Ownership::Ours(container) = self.container(id).await? else {
            // The log is removed with its container.
            let state = self.observe(id).await?;
            return state
                .map(|_| stream::empty().boxed())
                .ok_or(SandboxError::NotFound);
        };
        let options = LogsOptionsBuilder::new()
            .stdout(true)
            .stderr(true)
            .follow(tail.follow)
            .tail(&tail.lines.to_string())
            .build();
        let keys = [container.keys(), keys.to_vec()].concat();
        let parts = self.engine.client()?.logs(&container.id, Some(options));
        let reader = ContainerLogReader {
            parts: Some(Box::pin(parts)),
            out: LogMask::new(&keys),
            err: LogMask::new(&keys),
            // A followed log may be silent for any time.
            limit: (!tail.follow).then(|| self.engine.limit()),
        };
        Ok(stream::unfold(reader, ContainerLogReader::next).boxed())
    }
}

type Parts = dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send;

/// The state of one reader.
struct ContainerLogReader {
    /// `None` after the end.
    parts: Option<Pin<Box<Parts>>>,
    /// Each stream may stop within a line.
    out: LogMask,
    err: LogMask,
    /// Time for the engine to send the next chunk.
    limit: Option<Duration>,
}

impl ContainerLogReader {
    async fn next(mut self) -> Option<(Result<Vec<u8>, SandboxError>, Self)> {
        loop {
            let parts = self.parts.as_mut()?;
            // bollard may log what it reads.
            let part = parts.next().with_subscriber(NoSubscriber::default());
            let part = match self.limit {
                Some(limit) => tokio::time::timeout(limit, part).await,
                None => Ok(part.await),
            };
            let lines = match part {
                Ok(Some(Ok(LogOutput::StdErr { message }))) => self.err.push(&message),
                Ok(Some(Ok(other))) => self.out.push(&other.into_bytes()),
                Ok(None) => {
                    self.parts = None;
                    [self.out.finish(), self.err.finish()].concat()
                }
                Ok(Some(Err(error))) => {
                    return Some(self.failed(EngineError::new(OPERATION, error)));
                }
                Err(_) => {
                    return Some(
                        self.failed(EngineError::of(OPERATION, EngineErrorKind::TimedOut)),
                    );
                }
            };
            if !lines.is_empty() {
                return Some((Ok(lines), self));
            }
        }
    }

    fn failed(mut self, error: EngineError) -> (Result<Vec<u8>, SandboxError>, Self) {
        self.parts = None;
        (Err(error.into()), self)
    }
}
