//! Programs that do not notice network interfaces.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;

/// Starts a program that cannot ask the kernel for changes of network interfaces: a browser fails all of its requests when one
/// appears, and containers of other tests make them.
///
/// # Panics
/// When the kernel takes no filter, or the program does not start.
pub(crate) fn spawn_without_netlink(mut command: Command) -> Child {
    let runtime = Handle::current();
    // The filter is for a thread, and for what it starts.
    std::thread::scope(|scope| {
        let spawned = scope.spawn(|| -> io::Result<Child> {
            let _entered = runtime.enter();
            seccompiler::apply_filter(&without_netlink()).map_err(io::Error::other)?;
            command.spawn()
        });
        let spawned = spawned.join().expect("the thread panicked");
        spawned.expect("cannot start a shell without netlink")
    })
}

fn without_netlink() -> BpfProgram {
    let netlink = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Eq,
        u64::from(libc::AF_NETLINK.unsigned_abs()),
    );
    let rule = netlink.and_then(|netlink| SeccompRule::new(vec![netlink]));
    let rules = BTreeMap::from([(libc::SYS_socket, vec![rule.expect("a rule")])]);
    let refused = SeccompAction::Errno(libc::EAFNOSUPPORT.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into();
    let architecture = architecture.expect("no filter exists for this processor");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture);
    let program = filter.and_then(TryInto::try_into);
    program.expect("a program")
}
