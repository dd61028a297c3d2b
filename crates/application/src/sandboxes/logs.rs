//! Logs of sandboxes, for their owners.

use std::sync::Arc;
use std::time::Duration;

use domain::encryption::cipher::Cipher;
use domain::error::{ErrorClass, chain};
use domain::id::{HostId, OwnerId, SandboxId};
use domain::sandbox::{LogStream, LogTail, Sandbox, SandboxReader, SandboxRepository};
use domain::user::scope::Scope;
use futures::StreamExt;
use secrecy::SecretString;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::conversation_credential;
use crate::AppError;
use crate::runtime::user_slots::{NoSlot, UserSlot, UserSlots};

/// Maximum number of logs that one user reads at the same time in this process.
const MAX_READERS_PER_USER: usize = 10;
/// Maximum number of logs that all users read. Each holds a part of a log in memory and a connection to the engine.
const MAX_READERS: usize = 64;
/// A followed log without output for this long is closed: a disconnected reader is only noticed at the next output.
const SILENT_LOG_TIMEOUT: Duration = Duration::from_secs(15 * 60);

fn reader_slots() -> UserSlots<()> {
    UserSlots::new(MAX_READERS_PER_USER, MAX_READERS)
}

fn acquire_reader(readers: &UserSlots<()>, user: &OwnerId) -> Result<UserSlot<()>, AppError> {
    readers.acquire(user, ()).map_err(|refusal| match refusal {
        NoSlot::Overall => AppError::refused(
            ErrorClass::Unavailable,
            "Too many logs are being read: try again later",
        ),
        NoSlot::PerUser | NoSlot::Held => AppError::refused(
            ErrorClass::RateLimited,
            format!("At most {MAX_READERS_PER_USER} logs at a time: close one"),
        ),
    })
}

pub struct SandboxLogReader {
    logs: LogStream,
    id: SandboxId,
    shutdown: CancellationToken,
    /// Time of the last output: a reader may poll in short intervals.
    last_output: Instant,
    _slot: UserSlot<()>,
}

impl SandboxLogReader {
    /// The next lines, with keys masked. `None` at the end: of the log, of the sandbox's main process, of this
    /// service, after a long silence, or on an error (which is logged).
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        let next = tokio::time::timeout_at(self.last_output + SILENT_LOG_TIMEOUT, self.logs.next());
        let next = self.shutdown.run_until_cancelled(next).await?;
        match next.ok()?? {
            Ok(lines) => {
                self.last_output = Instant::now();
                Some(lines)
            }
            Err(error) => {
                tracing::warn!(sandbox.id = %self.id, error = %chain(&error), "cannot read the log of a sandbox any further");
                None
            }
        }
    }
}

#[derive(Clone)]
pub struct SandboxLogService {
    sandboxes: Arc<dyn SandboxRepository>,
    reader: Arc<dyn SandboxReader>,
    cipher: Arc<dyn Cipher>,
    host: HostId,
    readers: UserSlots<()>,
    /// Cancelled when all readers must end.
    shutdown: CancellationToken,
}

impl SandboxLogService {
    pub(crate) fn new(
        sandboxes: Arc<dyn SandboxRepository>,
        reader: Arc<dyn SandboxReader>,
        cipher: Arc<dyn Cipher>,
        host: HostId,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            sandboxes,
            reader,
            cipher,
            host,
            readers: reader_slots(),
            shutdown,
        }
    }

    pub(crate) fn reader_count(&self) -> usize {
        self.readers.count()
    }

    /// Opens the log of a sandbox, also of a paused or failed one. A sandbox of another user is not found; too many
    /// readers are [`ErrorClass::RateLimited`].
    pub async fn open(
        &self,
        user: &OwnerId,
        id: &SandboxId,
        tail: LogTail,
    ) -> Result<SandboxLogReader, AppError> {
        let slot = acquire_reader(&self.readers, user)?;
        let scope = Scope::Owner(user.clone());
        let row = self.sandboxes.find(&scope, id).await?;
        let row = row.ok_or_else(|| AppError::not_found("Not Found"))?;
        if row.host != self.host {
            let detail =
                "The sandbox is on another host, and only the service there can read its log";
            return Err(AppError::refused(ErrorClass::Unavailable, detail));
        }
        let logs = self.reader.logs(id, &self.open_keys(&row), tail).await?;
        Ok(SandboxLogReader {
            logs,
            id: id.clone(),
            shutdown: self.shutdown.clone(),
            last_output: Instant::now(),
            _slot: slot,
        })
    }

    /// The sandbox's keys, to mask them. A key that does not open is skipped: any text of its length is masked anyway.
    fn open_keys(&self, row: &Sandbox) -> Vec<SecretString> {
        let context = Sandbox::key_context(&row.id);
        let sealed = [&row.session_key, &row.secret_key];
        let open = |it| self.cipher.open(&context, it).ok();
        let keys = sealed.into_iter().filter_map(open);
        keys.chain(conversation_credential(&*self.cipher, row).ok())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use domain::error::Classify;

    use super::*;

    #[test]
    fn log_readers_are_limited_per_user_and_in_total() {
        let readers = reader_slots();
        let acquire = |name: &str| acquire_reader(&readers, &OwnerId::parse(name).unwrap());
        let mut open: Vec<_> = (0..MAX_READERS_PER_USER)
            .map(|_| acquire("ada").unwrap())
            .collect();
        assert_eq!(acquire("ada").unwrap_err().class(), ErrorClass::RateLimited);
        open.pop();
        open.push(acquire("ada").unwrap());
        for n in MAX_READERS_PER_USER..MAX_READERS {
            open.push(acquire(&format!("user{n}")).unwrap());
        }
        assert_eq!(acquire("bob").unwrap_err().class(), ErrorClass::Unavailable);
        drop(open);
        assert_eq!(readers.count(), 0);
    }
}
