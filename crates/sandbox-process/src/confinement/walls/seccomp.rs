//! The seccomp filter: which system calls a sandbox must not make.
//!
//! Everything is allowed but the calls listed here. A denied call fails with an error and never kills: programs probe for
//! features, and fall back. The kernel remembers calls that the filter allows whatever their arguments are, so most calls
//! cost nothing.

use std::collections::BTreeMap;
use std::io;

use anyhow::{Context as _, ensure};
use libc::c_long;
use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

/// Calls that only administrators, debuggers and exploits need.
pub(super) const FORBIDDEN: &[(&str, c_long)] = &[
    // The view of the file system.
    ("mount", libc::SYS_mount),
    ("umount2", libc::SYS_umount2),
    ("pivot_root", libc::SYS_pivot_root),
    ("chroot", libc::SYS_chroot),
    ("open_tree", libc::SYS_open_tree),
    ("move_mount", libc::SYS_move_mount),
    ("fsopen", libc::SYS_fsopen),
    ("fsconfig", libc::SYS_fsconfig),
    ("fsmount", libc::SYS_fsmount),
    ("fspick", libc::SYS_fspick),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("open_tree_attr", OPEN_TREE_ATTR),
    ("name_to_handle_at", libc::SYS_name_to_handle_at),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("fanotify_init", libc::SYS_fanotify_init),
    ("fanotify_mark", libc::SYS_fanotify_mark),
    // Namespaces, other than by `clone` and `unshare`.
    ("setns", libc::SYS_setns),
    // Memory and descriptors of other processes.
    ("ptrace", libc::SYS_ptrace),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("process_madvise", libc::SYS_process_madvise),
    ("kcmp", libc::SYS_kcmp),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    // Parts of the kernel with a history of holes.
    ("bpf", libc::SYS_bpf),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("userfaultfd", libc::SYS_userfaultfd),
    // The kernel's keys have no namespace.
    ("add_key", libc::SYS_add_key),
    ("request_key", libc::SYS_request_key),
    ("keyctl", libc::SYS_keyctl),
    // The machine.
    ("init_module", libc::SYS_init_module),
    ("finit_module", libc::SYS_finit_module),
    ("delete_module", libc::SYS_delete_module),
    ("kexec_load", libc::SYS_kexec_load),
    ("kexec_file_load", KEXEC_FILE_LOAD),
    ("reboot", libc::SYS_reboot),
    ("swapon", libc::SYS_swapon),
    ("swapoff", libc::SYS_swapoff),
    ("acct", libc::SYS_acct),
    ("quotactl", libc::SYS_quotactl),
    ("quotactl_fd", libc::SYS_quotactl_fd),
    ("syslog", libc::SYS_syslog),
    #[cfg(target_arch = "x86_64")]
    ("iopl", libc::SYS_iopl),
    #[cfg(target_arch = "x86_64")]
    ("ioperm", libc::SYS_ioperm),
];

/// Calls for which libraries have a fallback if the kernel lacks them. The flags of `clone3` are in memory, where a filter
/// cannot read them; those of `clone` are in a register.
pub(super) const UNAVAILABLE: &[(&str, c_long)] = &[
    ("clone3", libc::SYS_clone3),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
];

/// Newer than the constants of `libc`; numbers from 424 on are the same on all architectures.
const OPEN_TREE_ATTR: c_long = 467;
#[cfg(target_arch = "x86_64")]
const KEXEC_FILE_LOAD: c_long = 320;
#[cfg(target_arch = "aarch64")]
const KEXEC_FILE_LOAD: c_long = 294;

/// Flags of `clone` and `unshare` that create namespaces. `CLONE_NEWTIME` is a signal number to `clone`.
const NEW_NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];
const CLONE_NEWTIME: libc::c_int = 0x80;

/// Inject input into a terminal: a program could type commands into the terminal that started it.
const TERMINAL_INJECTIONS: [u64; 2] = [libc::TIOCSTI, 0x541C /* TIOCLINUX */];

/// Linux, 32-bit Linux, each with the old form of version numbers, and the question which one is set.
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

const NETLINK_ROUTE: u64 = 0;

/// System calls of the x32 interface, which have the architecture of x86-64, start here.
#[cfg(target_arch = "x86_64")]
const X32_BIT: u32 = 0x4000_0000;

/// The filter as bytes of an array of `struct sock_filter`, as `bwrap --seccomp` and `prctl(PR_SET_SECCOMP)` take it.
/// Nothing above it needs to install it twice: [`raise`](super::raise) does so.
pub(crate) fn seccomp_filter() -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for instruction in program()? {
        bytes.extend(instruction.code.to_ne_bytes());
        bytes.extend([instruction.jt, instruction.jf]);
        bytes.extend(instruction.k.to_ne_bytes());
    }
    Ok(bytes)
}

/// Puts the calling thread, and all it creates from now on, under the filter.
pub(crate) fn install() -> io::Result<()> {
    let program = program().map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

/// Joins one program for each error: `seccompiler` knows two actions a program.
fn program() -> anyhow::Result<BpfProgram> {
    let parts = [
        (Errno::PERM, forbidden()?),
        (Errno::NOSYS, unconditional(UNAVAILABLE)),
        (Errno::AFNOSUPPORT, sockets()?),
    ];
    let mut program = BpfProgram::new();
    for (errno, rules) in parts {
        let part = compile(rules, errno)?;
        if program.is_empty() {
            program.extend(part);
        } else {
            // A call that the former part does not know reaches the next one, without its check of the architecture.
            program.pop();
            program.extend_from_slice(part.get(PROLOGUE_LEN..).unwrap_or_default());
        }
    }
    refuse_foreign_calls(&mut program)?;
    Ok(program)
}

type CallRules = BTreeMap<i64, Vec<SeccompRule>>;

fn unconditional(calls: &[(&str, c_long)]) -> CallRules {
    calls
        .iter()
        .map(|(_, number)| (*number, Vec::new()))
        .collect()
}

fn forbidden() -> anyhow::Result<CallRules> {
    let mut rules = unconditional(FORBIDDEN);
    let namespaces = |flags: &[libc::c_int]| {
        let flags = flags.iter().map(|flag| {
            let flag = u64::try_from(*flag)?;
            rule([(0, SeccompCmpOp::MaskedEq(flag), flag)])
        });
        flags.collect::<anyhow::Result<Vec<_>>>()
    };
    let with_time = [NEW_NAMESPACES.as_slice(), &[CLONE_NEWTIME]].concat();
    rules.insert(libc::SYS_clone, namespaces(&NEW_NAMESPACES)?);
    rules.insert(libc::SYS_unshare, namespaces(&with_time)?);
    let injections = TERMINAL_INJECTIONS.map(|request| rule([(1, SeccompCmpOp::Eq, request)]));
    rules.insert(
        libc::SYS_ioctl,
        injections.into_iter().collect::<anyhow::Result<_>>()?,
    );
    // Init and the agent have one user, so the kernel would let the agent change init's limits. libc passes 0 for itself.
    let of_others = rule([(0, SeccompCmpOp::Ne, 0)])?;
    rules.insert(libc::SYS_prlimit64, vec![of_others]);
    let unusual = PERSONALITIES.map(|personality| (0, SeccompCmpOp::Ne, personality));
    rules.insert(libc::SYS_personality, vec![rule(unusual)?]);
    Ok(rules)
}

/// Sockets of the network namespace and of the file system, which other walls confine. Other families (packets, virtual
/// machines, cryptography, …) load kernel modules.
fn sockets() -> anyhow::Result<CallRules> {
    let families = [
        libc::AF_UNIX,
        libc::AF_INET,
        libc::AF_INET6,
        libc::AF_NETLINK,
    ];
    let mut foreign = Vec::new();
    for family in families {
        foreign.push((0, SeccompCmpOp::Ne, u64::try_from(family)?));
    }
    let netlink = [
        (0, SeccompCmpOp::Eq, u64::try_from(libc::AF_NETLINK)?),
        (2, SeccompCmpOp::Ne, NETLINK_ROUTE),
    ];
    let pair = [(0, SeccompCmpOp::Ne, u64::try_from(libc::AF_UNIX)?)];
    Ok(BTreeMap::from([
        (libc::SYS_socket, vec![rule(foreign)?, rule(netlink)?]),
        (libc::SYS_socketpair, vec![rule(pair)?]),
    ]))
}

/// All conditions (argument, comparison, value) must hold. The kernel reads 32 bits of each of these arguments, so the
/// filter compares 32: with 64, a bit above them would pass it.
fn rule(
    conditions: impl IntoIterator<Item = (u8, SeccompCmpOp, u64)>,
) -> anyhow::Result<SeccompRule> {
    let conditions = conditions.into_iter().map(|(argument, operator, value)| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    });
    let conditions = conditions.collect::<Result<Vec<_>, _>>()?;
    Ok(SeccompRule::new(conditions)?)
}

fn compile(rules: CallRules, errno: Errno) -> anyhow::Result<BpfProgram> {
    let errno = u32::try_from(errno.raw_os_error())?;
    let architecture = std::env::consts::ARCH
        .try_into()
        .context("no seccomp filter exists for this processor: use Docker sandboxes on it")?;
    let denied = SeccompAction::Errno(errno);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, architecture)?;
    let program: BpfProgram = filter.try_into()?;
    let ends_with_allow =
        matches!(program.last(), Some(last) if last.code == RETURN && last.k == ALLOW);
    let begins_with_checks = matches!(
        program.as_slice(),
        [_, _, kill, load, ..] if kill.code == RETURN && load.code == LOAD && load.k == 0
    );
    ensure!(
        ends_with_allow && begins_with_checks,
        "the compiler of seccomp filters changed its output"
    );
    Ok(program)
}

/// `seccompiler` begins each program so: load the architecture, compare, kill, load the number of the call.
const PROLOGUE_LEN: usize = 4;
const RETURN: u16 = 0x06;
const LOAD: u16 = 0x20;
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

/// Calls of another architecture, whose numbers mean other calls, do not exist.
fn refuse_foreign_calls(program: &mut BpfProgram) -> anyhow::Result<()> {
    let unknown = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::ENOSYS)?;
    let refusal = || sock_filter {
        code: RETURN,
        jt: 0,
        jf: 0,
        k: unknown,
    };
    let kill = program.get_mut(2).context("the filter is empty")?;
    *kill = refusal();
    #[cfg(target_arch = "x86_64")]
    {
        let is_x32 = sock_filter {
            code: 0x35, // jump if greater or equal
            jt: 0,
            jf: 1,
            k: X32_BIT,
        };
        program.splice(PROLOGUE_LEN..PROLOGUE_LEN, [is_x32, refusal()]);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
