//! Places at which a test kills the service: right before and right after everything that outlives it.
//!
//! In a release build these are empty functions. In a debug build, which is what the suites run, they call the function
//! that `main` has installed, and `main` installs one only where it is told to (`server/src/crash_points.rs`). Adapters call
//! them; this module is here because adapters share nothing else.

#[cfg(debug_assertions)]
use std::sync::OnceLock;

/// What is told of each arrival at a place: `before` or `after`, and what was or is about to be done.
#[cfg(debug_assertions)]
pub type Hook = fn(moment: &'static str, deed: &'static str);

#[cfg(debug_assertions)]
static HOOK: OnceLock<Hook> = OnceLock::new();

/// From now on, tells of every arrival. The first hook stays.
#[cfg(debug_assertions)]
pub fn install(hook: Hook) {
    let _ = HOOK.set(hook);
}

#[cfg(debug_assertions)]
fn reach(moment: &'static str, deed: &'static str) {
    if let Some(hook) = HOOK.get() {
        hook(moment, deed);
    }
}

#[cfg(not(debug_assertions))]
const fn reach(_moment: &'static str, _deed: &'static str) {}

/// To be called right before something is done that outlives the process: a commit, a call of an engine or of an agent
/// server, a file, a process. `deed` is its name, the same each time.
#[inline]
pub fn before(deed: &'static str) {
    reach("before", deed);
}

/// To be called right after it, whatever came of it.
#[inline]
pub fn after(deed: &'static str) {
    reach("after", deed);
}

/// Does something between [`before`] and [`after`].
#[inline]
pub fn around<T>(deed: &'static str, work: impl FnOnce() -> T) -> T {
    before(deed);
    let done = work();
    after(deed);
    done
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::sync::Mutex;

    use super::*;

    static SEEN: Mutex<Vec<(&str, &str)>> = Mutex::new(Vec::new());

    /// The only test that installs one: it is there for good.
    #[test]
    fn work_is_told_of_before_and_after_once_somebody_listens() {
        assert_eq!(around("unheard", || 1), 1);
        install(|moment, deed| SEEN.lock().unwrap().push((moment, deed)));
        assert_eq!(around("writing", || SEEN.lock().unwrap().len()), 1);
        let expected = [("before", "writing"), ("after", "writing")];
        assert_eq!(*SEEN.lock().unwrap(), expected);
    }
}
