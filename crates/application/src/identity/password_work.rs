//! Runs the slow hash of passwords on the blocking pool, a few at a time.

use std::sync::Arc;
use std::time::Duration;

use domain::error::ErrorClass;
use domain::user::sign_in::{PasswordHash, PasswordHasher};
use secrecy::SecretString;
use tokio::sync::Semaphore;

use crate::AppError;

/// Hashes at the same time. Each takes a core for tens of milliseconds, and 19 MiB of memory.
const MAX_PARALLEL_HASHES: usize = 2;
/// Longest wait for a turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct PasswordWork {
    hasher: Arc<dyn PasswordHasher>,
    permits: Arc<Semaphore>,
}

impl PasswordWork {
    pub(crate) fn new(hasher: Arc<dyn PasswordHasher>) -> Self {
        Self {
            hasher,
            permits: Arc::new(Semaphore::new(MAX_PARALLEL_HASHES)),
        }
    }

    pub(crate) async fn hash(&self, password: &SecretString) -> Result<PasswordHash, AppError> {
        let password = password.clone();
        self.run(move |hasher| hasher.hash(&password)).await
    }

    /// Whether this is the password. Takes as long without a stored hash.
    pub(crate) async fn verify(
        &self,
        password: &SecretString,
        stored: Option<PasswordHash>,
    ) -> Result<bool, AppError> {
        let password = password.clone();
        self.run(move |hasher| hasher.verify(&password, stored.as_ref()))
            .await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn PasswordHasher) -> T + Send + 'static,
    ) -> Result<T, AppError> {
        let turn = Arc::clone(&self.permits).acquire_owned();
        let Ok(Ok(permit)) = tokio::time::timeout(TURN_TIMEOUT, turn).await else {
            return Err(AppError::refused(
                ErrorClass::Unavailable,
                "Too many people sign in at the moment. Try again in a few seconds.",
            ));
        };
        let hasher = Arc::clone(&self.hasher);
        // The permit moves along: a request that is dropped does not make room for another hash.
        let work = move || {
            let _permit = permit;
            work(hasher.as_ref())
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|_| AppError::refused(ErrorClass::Internal, "hashing a password failed"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Reports that a hash began, and waits for permission to end.
    struct SlowPasswords {
        began: Sender<()>,
        may_end: Mutex<Receiver<()>>,
    }

    impl PasswordHasher for SlowPasswords {
        fn hash(&self, _: &SecretString) -> PasswordHash {
            self.began.send(()).unwrap();
            self.may_end.lock().unwrap().recv().unwrap();
            PasswordHash::from_text("hash")
        }

        fn verify(&self, _: &SecretString, _: Option<&PasswordHash>) -> bool {
            false
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_passwords_are_hashed_at_a_time_and_others_wait_for_a_while() {
        let (began, has_begun) = channel();
        let (end, may_end) = channel();
        let hasher = SlowPasswords {
            began,
            may_end: Mutex::new(may_end),
        };
        let work = PasswordWork::new(Arc::new(hasher));
        let password = SecretString::from("password");
        let first = (0..MAX_PARALLEL_HASHES).map(|_| work.hash(&password));
        let last = async {
            for _ in 0..MAX_PARALLEL_HASHES {
                has_begun.recv().unwrap();
            }
            let pause = tokio::time::advance(TURN_TIMEOUT + Duration::from_millis(1));
            let (refused, ()) = tokio::join!(work.hash(&password), pause);
            for _ in 0..MAX_PARALLEL_HASHES {
                end.send(()).unwrap();
            }
            refused
        };
        let (results, refused) = tokio::join!(futures::future::join_all(first), last);
        assert!(results.iter().all(Result::is_ok));
        assert!(matches!(
            refused,
            Err(AppError::Refused {
                class: ErrorClass::Unavailable,
                ..
            })
        ));
        assert_eq!(has_begun.try_iter().count(), 0, "no third one began");
    }
}
