//! User ids on this machine for the sandboxes of a service that runs as root.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Uid, chownat};

/// The first id: far above those of accounts, containers and subordinate ids, and below 2^31, which some programs need.
const FIRST_ID: u32 = 1_879_048_192;
const ID_COUNT: u32 = 1 << 28;

/// Whether sandboxes of this service have ids of their own.
pub(crate) fn are_own() -> bool {
    rustix::process::geteuid().is_root()
}

/// The id of a sandbox by the owner of its directories; `None` before [`give`].
pub(crate) fn of(dir: &Path) -> Option<u32> {
    let uid = fs::symlink_metadata(dir).ok()?.uid();
    (uid >= FIRST_ID && uid - FIRST_ID < ID_COUNT).then_some(uid)
}

/// A free id. The same name gives the same id, unless another sandbox has it. Blocks.
pub(crate) fn choose(name: &str, taken: &[u32]) -> u32 {
    let digest = sandbox_provider::short_digest(&[name.as_bytes()]);
    let start = u64::from_str_radix(&digest, 16).unwrap_or_default();
    let count = u64::from(ID_COUNT);
    let all = (0..count).map(|step| (start % count + step) % count);
    let ids = all.filter_map(|offset| Some(FIRST_ID + u32::try_from(offset).ok()?));
    let mut free = ids.filter(|id| !taken.contains(id));
    free.next().unwrap_or(FIRST_ID)
}

/// Gives a directory and its content to an id. Call it while no process of the sandbox runs. Blocks.
///
/// The directory itself is changed last, so that an interrupted change is repeated. A file with several names keeps its
/// owner: the other names may be files of the machine.
pub(crate) fn give(dir: &Path, id: u32) -> io::Result<()> {
    if fs::symlink_metadata(dir)?.uid() == id {
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_dir() {
            give(&path, id)?;
        } else if meta.nlink() == 1 {
            set_owner(&path, id)?;
        }
    }
    set_owner(dir, id)
}

fn set_owner(path: &Path, id: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    Ok(chownat(CWD, path, Some(uid), Some(gid), flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_stable_and_not_shared() {
        let first = choose("one", &[]);
        assert_eq!(choose("one", &[]), first);
        assert!((FIRST_ID..FIRST_ID + ID_COUNT).contains(&first));
        let second = choose("one", &[first]);
        assert_ne!(second, first);
        assert!((FIRST_ID..FIRST_ID + ID_COUNT).contains(&second));
    }
}
