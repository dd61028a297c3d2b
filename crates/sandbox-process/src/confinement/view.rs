//! The namespaces and the file system of a sandbox, as arguments of bubblewrap.
//!
//! No mount point is inside a directory that the agent can write: bubblewrap creates missing mount points with the
//! service's privileges, and would follow a link that the agent left there.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::confinement::descriptors::memory_file;
use crate::confinement::plan::{ConfinementPlan, FileView, WORKSPACE};

/// The user and group id inside.
pub(crate) const INNER_ID: u32 = 1000;

/// The settings of init's allocator: a thread of its own would keep init from creating a user namespace.
pub(crate) const ALLOCATOR_VARIABLE: &str = "MALLOC_CONF";
const ALLOCATOR_SETTINGS: &str = "background_thread:false,narenas:1,tcache:false";

/// What init needs until it becomes the sandbox's user: to change its ids, and to set routes.
const INIT_CAPABILITIES: [&str; 3] = ["CAP_SETUID", "CAP_SETGID", "CAP_NET_ADMIN"];

/// Directories of the system, which are links or missing on some systems.
pub(crate) const SYSTEM: [&str; 10] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu",
];

/// Lists of the kernel's keys. Without root, all sandboxes belong to one account, and would see each other's.
const KEY_LISTS: [&str; 2] = ["/proc/keys", "/proc/key-users"];

/// The entries of `/etc` that programs need. None is secret; everything else in `/etc` does not exist inside.
const ETC: [&str; 51] = [
    "alternatives",
    "bash.bashrc",
    "bash_completion.d",
    "ca-certificates",
    "ca-certificates.conf",
    "chromium",
    "chromium.d",
    "crypto-policies",
    "debian_version",
    "default/locale",
    "fonts",
    "gai.conf",
    "gitconfig",
    "gnutls",
    "gtk-3.0",
    "host.conf",
    "inputrc",
    "java-17-openjdk",
    "java-21-openjdk",
    "java-25-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "login.defs",
    "lsb-release",
    "magic",
    "magic.mime",
    "mailcap",
    "manpath.config",
    // Its settings may have passwords.
    "maven/logging",
    "maven/m2.conf",
    "mime.types",
    "mke2fs.conf",
    "nanorc",
    "networks",
    "os-release",
    "perl",
    "pki",
    "profile",
    "profile.d",
    "protocols",
    "python3",
    "services",
    "shells",
    "ssl",
    "terminfo",
    "timezone",
    "vim",
];

/// The user of ids that have no number inside.
const OVERFLOW_USER: &str = "nobody";

/// Small files that replace those of the machine.
fn own_files() -> [(&'static str, String); 5] {
    [
        (
            "/etc/passwd",
            format!(
                "root:x:0:0:root:/root:/bin/sh\nagent:x:{INNER_ID}:{INNER_ID}:agent:/tmp:/bin/bash\n{OVERFLOW_USER}:x:65534:65534::/nonexistent:/bin/false\n"
            ),
        ),
        (
            "/etc/group",
            format!("root:x:0:\ntty:x:5:\nagent:x:{INNER_ID}:\nnogroup:x:65534:\n"),
        ),
        (
            "/etc/hosts",
            "127.0.0.1 localhost sandbox\n::1 localhost\n".to_owned(),
        ),
        (
            "/etc/nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files dns\n".to_owned(),
        ),
        ("/etc/resolv.conf", "nameserver 10.0.2.3\n".to_owned()),
    ]
}

/// All arguments up to the command, and the files whose descriptors they name.
pub(crate) fn arguments(plan: &ConfinementPlan) -> io::Result<(Vec<OsString>, Vec<OwnedFd>)> {
    let mut view = View::default();
    view.namespaces(plan.account_id.is_some());
    if plan.ends_with_service {
        view.add(["--die-with-parent"]);
    }
    view.system();
    view.own_files()?;
    view.own_directories(&plan.files);
    Ok((view.arguments, view.files))
}

#[derive(Default)]
struct View {
    arguments: Vec<OsString>,
    /// The directories that exist for the sake of mount points.
    directories: BTreeSet<PathBuf>,
    files: Vec<OwnedFd>,
}

impl View {
    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.arguments.extend(words.map(OsString::from));
    }

    fn bind(&mut self, how: &str, from: &Path, to: &Path) {
        let words = [how.as_ref(), from.as_os_str(), to.as_os_str()];
        self.arguments.extend(words.map(OsString::from));
    }

    /// As root, the mounts and the network belong to the machine's user namespace, so no process inside can ever change
    /// them. Another account needs a user namespace for them. Init leaves both by one of its own.
    fn namespaces(&mut self, is_root: bool) {
        let mut extra = None;
        if !is_root {
            self.add(["--unshare-user", "--uid", "0", "--gid", "0"]);
            // Only with it may init map the id 0 of this namespace into its own one.
            extra = Some("CAP_SETFCAP");
        }
        self.add([
            "--unshare-pid",
            "--unshare-net",
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-cgroup-try",
            "--as-pid-1",
        ]);
        self.add(["--setenv", ALLOCATOR_VARIABLE, ALLOCATOR_SETTINGS]);
        self.add(["--hostname", "sandbox", "--cap-drop", "ALL"]);
        for capability in INIT_CAPABILITIES.into_iter().chain(extra) {
            self.add(["--cap-add", capability]);
        }
    }

    fn system(&mut self) {
        self.directory(Path::new("/etc/default"));
        for path in SYSTEM.map(Path::new) {
            self.readable(path);
        }
        for name in ETC {
            self.readable(&Path::new("/etc").join(name));
        }
        self.add(["--proc", "/proc", "--dev", "/dev"]);
        for path in KEY_LISTS.map(Path::new) {
            if path.exists() {
                self.bind("--ro-bind", Path::new("/dev/null"), path);
            }
        }
        self.add(["--perms", "1777", "--tmpfs", "/dev/shm"]);
        self.add(["--perms", "0755", "--tmpfs", "/run"]);
        self.directory(Path::new("/var"));
        self.add(["--symlink", "/tmp", "/var/tmp"]);
    }

    /// Shows a file, or a link as a link, if it exists.
    fn readable(&mut self, path: &Path) {
        if let Ok(target) = fs::read_link(path) {
            self.bind("--symlink", &target, path);
        } else if path.exists() {
            self.bind("--ro-bind", path, path);
        }
    }

    fn own_files(&mut self) -> io::Result<()> {
        for (path, text) in own_files() {
            let file = memory_file("file", text.as_bytes())?;
            let number = file.as_raw_fd().to_string();
            self.files.push(file);
            self.add(["--perms", "0644", "--ro-bind-data", &number, path]);
        }
        Ok(())
    }

    fn own_directories(&mut self, files: &FileView) {
        let tmp = Path::new("/tmp");
        let mut all = files.readable.iter().chain(&files.writable);
        if all.any(|path| path.starts_with(tmp)) {
            // A mount point in the sandbox's own directory would be inside what the agent can write.
            self.add(["--perms", "1777", "--tmpfs", "/tmp"]);
        } else {
            self.bind("--bind", &files.tmp, tmp);
        }
        self.directory(&files.working_dir);
        for path in visible(&files.readable) {
            self.mount("--ro-bind", path);
        }
        for path in &files.writable {
            self.mount("--bind", path);
        }
        if let Some(workspace) = &files.workspace {
            self.bind("--bind", workspace, Path::new(WORKSPACE));
        }
        self.add(["--remount-ro", "/", "--chdir"]);
        self.arguments.push(files.working_dir.clone().into());
    }

    fn mount(&mut self, how: &str, path: &Path) {
        if let Some(parent) = path.parent() {
            self.directory(parent);
        }
        self.bind(how, path, path);
    }

    /// Creates a directory for mount points, which all may enter. bubblewrap makes missing ones private.
    fn directory(&mut self, path: &Path) {
        let is_made_before = |dir: &&Path| {
            dir.parent().is_none() || *dir == Path::new("/tmp") || self.directories.contains(*dir)
        };
        let missing = path.ancestors().take_while(|dir| !is_made_before(dir));
        let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        missing.reverse();
        for dir in missing {
            self.add(["--perms", "0755", "--dir"]);
            self.arguments.push(dir.clone().into());
            self.directories.insert(dir);
        }
    }
}

/// The paths that the system's directories do not show already, without those inside another one.
fn visible(paths: &[PathBuf]) -> Vec<&PathBuf> {
    let is_inside = |path: &Path, dir: &Path| path != dir && path.starts_with(dir);
    let is_shown = |path: &Path| {
        SYSTEM.iter().any(|dir| path.starts_with(dir))
            || paths.iter().any(|dir| is_inside(path, dir))
    };
    let mut visible: Vec<_> = paths.iter().filter(|path| !is_shown(path)).collect();
    visible.sort();
    visible.dedup();
    visible
}
