//! Why a kernel refuses namespaces to the service, and what the operator can do.

use std::fs;
use std::path::Path;

/// Settings of the kernel, and where the service runs.
#[derive(Debug, Default)]
pub(super) struct KernelSettings {
    /// `None`: the kernel has no such setting.
    unprivileged_userns_clone: Option<u64>,
    apparmor_restrict_unprivileged_userns: Option<u64>,
    max_user_namespaces: Option<u64>,
    has_user_namespaces: bool,
    is_container: bool,
    is_root: bool,
}

impl KernelSettings {
    pub(super) fn read() -> Self {
        let number = |name: &str| {
            let text = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
            text.trim().parse().ok()
        };
        let exists = |path: &str| Path::new(path).exists();
        Self {
            unprivileged_userns_clone: number("kernel/unprivileged_userns_clone"),
            apparmor_restrict_unprivileged_userns: number(
                "kernel/apparmor_restrict_unprivileged_userns",
            ),
            max_user_namespaces: number("user/max_user_namespaces"),
            has_user_namespaces: exists("/proc/self/ns/user"),
            is_container: exists("/.dockerenv") || exists("/run/.containerenv"),
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    /// The cause and its remedy, if the settings and the message of bubblewrap show it.
    pub(super) fn explain(&self, message: &str) -> Option<(String, String)> {
        let sysctl = |name: &str, value: u64| {
            let file = "/etc/sysctl.d/90-agent-workspace.conf";
            format!("run `sysctl -w {name}={value}`, and write {name}={value} to {file}")
        };
        let diagnosis = if !self.has_user_namespaces {
            let remedy = "use a kernel with CONFIG_USER_NS, or run sandboxes in Docker";
            ("the kernel has no user namespaces", remedy.to_owned())
        } else if self.max_user_namespaces == Some(0) {
            let name = "user.max_user_namespaces";
            ("user.max_user_namespaces is 0", sysctl(name, 15_000))
        } else if !self.is_root && self.unprivileged_userns_clone == Some(0) {
            let name = "kernel.unprivileged_userns_clone";
            ("kernel.unprivileged_userns_clone is 0", sysctl(name, 1))
        } else if message.contains("mount proc") {
            let remedy = "remove ProtectKernelTunables=, ProtectKernelLogs= and PrivateDevices= from the systemd unit \
                          (`systemctl edit`), start a container with --security-opt systempaths=unconfined, or run the \
                          service as root";
            (
                "something hides parts of /proc from the service",
                remedy.to_owned(),
            )
        } else if self.is_container && is_refusal(message) {
            let remedy = "start the container with --privileged, or with --security-opt seccomp=unconfined --security-opt \
                          apparmor=unconfined --security-opt systempaths=unconfined --cap-add SYS_ADMIN --cap-add NET_ADMIN; \
                          or run sandboxes in Docker";
            (
                "the service runs in a container that forbids nesting",
                remedy.to_owned(),
            )
        } else if !self.is_root && self.apparmor_restrict_unprivileged_userns == Some(1) {
            let name = "kernel.apparmor_restrict_unprivileged_userns";
            let remedy = format!(
                "load an AppArmor profile that lets bwrap create user namespaces, or {}; or run the service as root",
                sysctl(name, 0)
            );
            ("kernel.apparmor_restrict_unprivileged_userns is 1", remedy)
        } else {
            return None;
        };
        Some((diagnosis.0.to_owned(), diagnosis.1))
    }
}

/// Whether bubblewrap was not permitted to do its work.
fn is_refusal(message: &str) -> bool {
    ["Operation not permitted", "No permissions", "namespace"]
        .iter()
        .any(|part| message.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut KernelSettings);

    #[test]
    fn each_cause_has_its_remedy() {
        let usual = || KernelSettings {
            unprivileged_userns_clone: Some(1),
            apparmor_restrict_unprivileged_userns: Some(0),
            max_user_namespaces: Some(15_000),
            has_user_namespaces: true,
            ..KernelSettings::default()
        };
        assert_eq!(usual().explain(""), None);
        let causes: [(Change, &str, &str); 5] = [
            (
                |kernel| kernel.has_user_namespaces = false,
                "no user namespaces",
                "CONFIG_USER_NS",
            ),
            (
                |kernel| kernel.max_user_namespaces = Some(0),
                "max_user_namespaces is 0",
                "sysctl -w user.max_user_namespaces=15000",
            ),
            (
                |kernel| kernel.unprivileged_userns_clone = Some(0),
                "unprivileged_userns_clone is 0",
                "sysctl -w kernel.unprivileged_userns_clone=1",
            ),
            (
                |kernel| kernel.is_container = true,
                "forbids nesting",
                "--privileged",
            ),
            (
                |kernel| kernel.apparmor_restrict_unprivileged_userns = Some(1),
                "restrict_unprivileged_userns is 1",
                "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
            ),
        ];
        for (change, cause, remedy) in causes {
            let mut kernel = usual();
            change(&mut kernel);
            let (found, advice) = kernel
                .explain("bwrap: Creating new namespace failed")
                .unwrap();
            assert!(found.contains(cause), "{found}");
            assert!(advice.contains(remedy), "{advice}");
        }
    }

    #[test]
    fn a_hidden_proc_is_recognised_by_the_message() {
        let kernel = KernelSettings {
            has_user_namespaces: true,
            is_container: true,
            ..KernelSettings::default()
        };
        let message = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted";
        let (cause, remedy) = kernel.explain(message).unwrap();
        assert!(cause.contains("/proc"), "{cause}");
        assert!(remedy.contains("ProtectKernelTunables="), "{remedy}");
    }

    #[test]
    fn root_is_not_restricted_by_settings_for_others() {
        let kernel = KernelSettings {
            unprivileged_userns_clone: Some(0),
            apparmor_restrict_unprivileged_userns: Some(1),
            has_user_namespaces: true,
            is_root: true,
            ..KernelSettings::default()
        };
        assert_eq!(kernel.explain("bwrap: execvp: No such file"), None);
    }
}
