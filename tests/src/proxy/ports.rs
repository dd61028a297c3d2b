//! Who listens where, as the kernel tells it.

use std::collections::BTreeSet;
use std::fs;

/// A place where somebody listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) port: u16,
    pub(crate) is_loopback: bool,
    inode: String,
}

/// All of this machine.
pub(crate) fn listeners() -> Vec<Listener> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let tables: Vec<String> = tables.into_iter().filter_map(Result::ok).collect();
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    lines.filter_map(listener).collect()
}

/// Of one line, if somebody listens there.
fn listener(line: &str) -> Option<Listener> {
    /// The kernel's number of that state.
    const LISTENS: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    // Words of four bytes, in the machine's order.
    let is_loopback = match address.len() {
        8 => address.ends_with("7F"),
        _ => {
            address == "00000000000000000000000001000000"
                || address.starts_with("0000000000000000FFFF0000") && address.ends_with("7F")
        }
    };
    (*fields.get(3)? == LISTENS).then_some(Listener {
        port: u16::from_str_radix(port, 16).ok()?,
        is_loopback,
        inode: (*fields.get(9)?).to_owned(),
    })
}

/// Those of these processes.
pub(crate) fn listeners_of(pids: &[u32]) -> Vec<Listener> {
    let files = pids
        .iter()
        .map(|pid| fs::read_dir(format!("/proc/{pid}/fd")));
    let links = files.flatten().flatten().flatten();
    let links = links.filter_map(|entry| fs::read_link(entry.path()).ok());
    let open: BTreeSet<String> = links.map(|link| link.display().to_string()).collect();
    let mut all = listeners();
    all.retain(|it| open.contains(&format!("socket:[{}]", it.inode)));
    all
}
