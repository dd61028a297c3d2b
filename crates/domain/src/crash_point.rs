//! Crash points: moments at which a test kills the service, right before and right after each operation whose effect
//! outlives it.
//!
//! In a release build these functions are empty. In a debug build, which the test suites run, they call the hook that
//! `main` installs if the environment asks for it (`server/src/crash_points.rs`). Adapters call them; the module is in
//! this crate because adapters share no other one.

#[cfg(debug_assertions)]
use std::sync::OnceLock;

/// Called at each crash point with `before` or `after` and the name of the operation.
#[cfg(debug_assertions)]
pub type CrashPointHook = fn(moment: &'static str, operation: &'static str);

#[cfg(debug_assertions)]
static HOOK: OnceLock<CrashPointHook> = OnceLock::new();

/// Installs a hook. Later calls have no effect.
#[cfg(debug_assertions)]
pub fn install(hook: CrashPointHook) {
    let _ = HOOK.set(hook);
}

#[cfg(debug_assertions)]
fn reach(moment: &'static str, operation: &'static str) {
    if let Some(hook) = HOOK.get() {
        hook(moment, operation);
    }
}

#[cfg(not(debug_assertions))]
const fn reach(_moment: &'static str, _operation: &'static str) {}

/// Marks the moment right before an operation whose effect outlives the process: a commit, a request to an engine or
/// agent server, a file, a process. `operation` is its fixed name.
#[inline]
pub fn before(operation: &'static str) {
    reach("before", operation);
}

/// Marks the moment right after such an operation, whether it succeeded or not.
#[inline]
pub fn after(operation: &'static str) {
    reach("after", operation);
}

/// Runs an operation between [`before`] and [`after`].
#[inline]
pub fn around<T>(operation: &'static str, work: impl FnOnce() -> T) -> T {
    before(operation);
    let done = work();
    after(operation);
    done
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::sync::Mutex;

    use super::*;

    static SEEN: Mutex<Vec<(&str, &str)>> = Mutex::new(Vec::new());

    /// The only test that installs a hook, because a hook cannot be removed.
    #[test]
    fn an_installed_hook_is_called_before_and_after() {
        assert_eq!(around("without hook", || 1), 1);
        install(|moment, operation| SEEN.lock().unwrap().push((moment, operation)));
        assert_eq!(around("writing", || SEEN.lock().unwrap().len()), 1);
        let expected = [("before", "writing"), ("after", "writing")];
        assert_eq!(*SEEN.lock().unwrap(), expected);
    }
}
