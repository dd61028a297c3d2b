//! Each denied call, made by a child with and without the filter.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::json;

use super::*;

/// A call: its number and arguments.
type Call = (c_long, Vec<i64>);

/// The error numbers of the calls; 0 is success. Rust without `unsafe` cannot make any call, so Python makes them.
fn errors(filter: Option<&[u8]>, calls: &[Call]) -> Vec<i32> {
    let mut child = Command::new("python3")
        .args(["-c", include_str!("calls.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let request = json!({"filter": filter, "calls": calls});
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(request.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Arguments that no call accepts, so that the calls change nothing where they are allowed.
const NONSENSE: [i64; 6] = [-1; 6];

#[test]
fn denied_calls_fail_with_their_error_and_only_under_the_filter() {
    let filter = seccomp_filter().unwrap();
    for (calls, expected) in [(FORBIDDEN, libc::EPERM), (UNAVAILABLE, libc::ENOSYS)] {
        let numbers: Vec<Call> = calls
            .iter()
            .map(|(_, number)| (*number, NONSENSE.to_vec()))
            .collect();
        let with = errors(Some(&filter), &numbers);
        let without = errors(None, &numbers);
        let is_privileged = rustix::process::geteuid().is_root();
        for (at, (name, _)) in calls.iter().enumerate() {
            assert_eq!(with[at], expected, "{name}");
            // Without privileges the kernel refuses many of them by itself, and it may be built without others.
            if is_privileged && without[at] != libc::ENOSYS {
                assert_ne!(without[at], expected, "{name} without the filter");
            }
        }
    }
}

#[test]
fn arguments_decide_where_a_call_has_harmless_uses() {
    const CLONE_FILES: i64 = 0x400;
    let (perm, family) = (libc::EPERM, libc::EAFNOSUPPORT);
    let signal = i64::from(libc::SIGCHLD);
    let above = 1_i64 << 32;
    let ioctl = |request: i64| (libc::SYS_ioctl, vec![-1, request, 0]);
    let socket = |family: libc::c_int, kind: libc::c_int, protocol: i64| {
        let arguments = vec![i64::from(family), i64::from(kind), protocol];
        (libc::SYS_socket, arguments)
    };
    let pair = |family: libc::c_int| (libc::SYS_socketpair, vec![i64::from(family), 1, 0, -1]);
    let (stream, raw) = (libc::SOCK_STREAM, libc::SOCK_RAW);
    // The call, the error under the filter, and the one without it.
    let mut cases: Vec<(Call, i32, i32)> = vec![
        ((libc::SYS_clone, vec![signal, 0, 0, 0, 0]), 0, 0),
        ((libc::SYS_unshare, vec![CLONE_FILES]), 0, 0),
        (ioctl(0x5412), perm, libc::EBADF),
        (ioctl(0x5412 | above), perm, libc::EBADF),
        (ioctl(0x541C), perm, libc::EBADF),
        (ioctl(0x5401), libc::EBADF, libc::EBADF),
        ((libc::SYS_personality, vec![0xffff_ffff]), 0, 0),
        ((libc::SYS_personality, vec![0]), 0, 0),
        ((libc::SYS_personality, vec![0x004_0000]), perm, 0),
        (socket(libc::AF_UNIX, stream, 0), 0, 0),
        (socket(libc::AF_INET, stream, 0), 0, 0),
        (socket(libc::AF_NETLINK, raw, 0), 0, 0),
        (socket(libc::AF_NETLINK, raw, 15), family, 0),
        (pair(libc::AF_UNIX), libc::EFAULT, libc::EFAULT),
    ];
    for flag in NEW_NAMESPACES {
        let flag = i64::from(flag);
        let clone = (libc::SYS_clone, vec![flag | signal, 0, 0, 0, 0]);
        cases.push((clone, perm, 0));
        cases.push(((libc::SYS_unshare, vec![flag]), perm, 0));
    }
    cases.push(((libc::SYS_unshare, vec![i64::from(CLONE_NEWTIME)]), perm, 0));

    let filter = seccomp_filter().unwrap();
    let calls: Vec<_> = cases.iter().map(|(call, ..)| call.clone()).collect();
    let with = errors(Some(&filter), &calls);
    let without = errors(None, &calls);
    for (at, (call, expected, free)) in cases.iter().enumerate() {
        assert_eq!(with[at], *expected, "{call:?}");
        // Other accounts may not create every kind of namespace.
        if rustix::process::geteuid().is_root() {
            assert_eq!(without[at], *free, "{call:?} without the filter");
        }
    }
}

#[test]
fn foreign_socket_families_do_not_exist() {
    let families = [
        libc::AF_PACKET,
        libc::AF_ALG,
        libc::AF_VSOCK,
        libc::AF_BLUETOOTH,
        libc::AF_TIPC,
        libc::AF_RDS,
        libc::AF_XDP,
    ];
    let arguments = |family: &libc::c_int| vec![i64::from(*family), 3, 0, -1];
    let sockets = families.iter().map(|f| (libc::SYS_socket, arguments(f)));
    let pairs = families
        .iter()
        .map(|f| (libc::SYS_socketpair, arguments(f)));
    let calls: Vec<Call> = sockets.chain(pairs).collect();
    let filter = seccomp_filter().unwrap();
    let found = errors(Some(&filter), &calls);
    assert!(
        found.iter().all(|errno| *errno == libc::EAFNOSUPPORT),
        "{found:?}"
    );
}

#[cfg(target_arch = "x86_64")]
#[test]
fn calls_of_x32_do_not_exist() {
    let calls: Vec<Call> = [libc::SYS_getpid, libc::SYS_mount, 512]
        .map(|number| (number | i64::from(X32_BIT), Vec::new()))
        .to_vec();
    let filter = seccomp_filter().unwrap();
    assert_eq!(errors(Some(&filter), &calls), [libc::ENOSYS; 3]);
}

#[test]
fn a_filter_has_room_to_grow() {
    let instructions = seccomp_filter().unwrap().len() / 8;
    assert!(instructions < 1_000, "{instructions}");
}
