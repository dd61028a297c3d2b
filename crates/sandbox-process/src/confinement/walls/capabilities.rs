//! Capabilities: a sandbox has none, and gets none by executing a file.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// Empties all five sets of the calling thread. Only a holder of `CAP_SETPCAP` can empty the bounding set; without it the set
/// must be empty already.
pub(crate) fn drop_all() -> io::Result<()> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(true) => remove_capability_from_bounding_set(capability)?,
            Ok(false) => {}
            // The kernel knows no more of them.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own, because it cannot be undone.
    #[test]
    fn nothing_remains() {
        std::thread::spawn(|| {
            if let Err(error) = drop_all() {
                // Accounts without privileges cannot empty the bounding set.
                assert!(!rustix::process::geteuid().is_root(), "{error}");
                return;
            }
            let sets = rustix::thread::capabilities(None).unwrap();
            assert!(sets.effective.is_empty() && sets.permitted.is_empty());
            assert!(sets.inheritable.is_empty());
            assert!(!capability_is_in_bounding_set(CapabilitySet::CHOWN).unwrap());
            assert!(rustix::system::sethostname(b"test").is_err());
        })
        .join()
        .unwrap();
    }
}
