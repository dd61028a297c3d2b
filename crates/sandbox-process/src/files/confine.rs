//! Confines paths to a sandbox's own directories.
//!
//! The kernel resolves every path below an open directory (`openat2`), so neither `..` nor a symbolic link escapes. A
//! sandbox can change links afterwards; callers therefore use the resolved path.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use domain::sandbox::normalize_path;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2};
use rustix::io::Errno;

use crate::files::layout::SandboxPaths;

/// The kernel gives up when a directory on the path is renamed concurrently; this many attempts are made.
const MAX_ATTEMPTS: u32 = 16;
/// `O_PATH`: opens nothing for reading, and does not block on a pipe.
const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Resolves a path; `None` if it escapes from the sandbox. An absolute path must end in the workspace, the home or the
/// temporary directory. A relative path starts at the agent server's working directory and must stay there. Blocks.
pub(crate) fn resolve(paths: &SandboxPaths, path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(normalize_path(path)?);
    if path.is_relative() {
        return resolve_beneath(&paths.root, &path);
    }
    let own = [paths.workspace(), paths.home(), paths.tmp()];
    let (base, below) = [&paths.root, &paths.short]
        .into_iter()
        .find_map(|base| Some((base, below(&path, base)?)))?;
    resolve_beneath(base, below).filter(|resolved| own.iter().any(|own| resolved.starts_with(own)))
}

/// Resolves a path in the `/tmp` of a confined sandbox, which is its temporary directory unless the data directory is in
/// `/tmp`. `None` as above. Blocks.
pub(crate) fn resolve_tmp(paths: &SandboxPaths, path: &str) -> Option<PathBuf> {
    const TMP: &str = "/tmp";
    if paths.root.starts_with(TMP) {
        return None;
    }
    resolve_shown(&paths.tmp(), TMP, path)
}

/// Resolves a path in a directory that a confined sandbox sees as `shown`. `None` as above. Blocks.
pub(crate) fn resolve_shown(dir: &Path, shown: &str, path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(normalize_path(path)?);
    let resolved = resolve_beneath(dir, path.strip_prefix(shown).ok()?)?;
    let below = resolved.strip_prefix(dir).ok()?;
    Some(Path::new(shown).join(below))
}

/// The rest of a path in this directory, given with or (as agent servers do) without symbolic links.
fn below<'a>(path: &'a Path, base: &Path) -> Option<&'a Path> {
    let plain = || path.strip_prefix(fs::canonicalize(base).ok()?).ok();
    path.strip_prefix(base).ok().or_else(plain)
}

/// Resolves the existing part of a path below a directory, and appends the rest.
fn resolve_beneath(base: &Path, below: &Path) -> Option<PathBuf> {
    let dir = open(base, PATH_FLAGS | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let (mut existing, mut missing) = (below, Vec::new());
    loop {
        match open_beneath(&dir, existing, OFlags::empty()) {
            Ok(file) => {
                let (start, end) = (path_of(&dir).ok()?, path_of(&file).ok()?);
                let mut resolved = base.join(end.strip_prefix(start).ok()?);
                resolved.extend(missing.iter().rev());
                return Some(resolved);
            }
            // A file in place of a directory: the agent server will report that.
            Err(Errno::NOENT | Errno::NOTDIR) => {
                // A dangling link would be followed when the file is created.
                if open_beneath(&dir, existing, OFlags::NOFOLLOW).is_ok() {
                    return None;
                }
                missing.push(existing.file_name()?);
                existing = existing.parent()?;
            }
            Err(_) => return None,
        }
    }
}

/// The current path of an open file.
fn path_of(file: &OwnedFd) -> io::Result<PathBuf> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::read_link(link)
}

fn open_beneath(dir: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..MAX_ATTEMPTS {
        match openat2(dir, path, PATH_FLAGS | flags, Mode::empty(), within) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Linux before 5.6, or a seccomp filter that does not know this call.
            Err(Errno::NOSYS | Errno::PERM) => return open_without_links(dir, path),
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens one component after the other without following links.
fn open_without_links(dir: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let mut current = openat(dir, ".", PATH_FLAGS | OFlags::DIRECTORY, Mode::empty())?;
    for name in path {
        current = openat(&current, name, PATH_FLAGS | OFlags::NOFOLLOW, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&current)?.st_mode).is_symlink() {
            return Err(Errno::LOOP);
        }
    }
    Ok(current)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use domain::id::{HostId, SandboxId};

    use super::*;
    use crate::files::layout::DataLayout;

    struct Fixture {
        dir: tempfile::TempDir,
        paths: SandboxPaths,
    }

    fn fixture() -> Fixture {
        let dir = tempfile::Builder::new()
            .prefix("c")
            .tempdir_in("/tmp")
            .unwrap();
        let host = HostId::parse("h").unwrap();
        let layout = DataLayout::new(dir.path(), &dir.path().join("r"), host).unwrap();
        let paths = layout.paths(&SandboxId::parse("s").unwrap());
        layout.create().unwrap();
        paths.create().unwrap();
        fs::write(dir.path().join("master.key"), "key").unwrap();
        fs::write(paths.state(), "{}").unwrap();
        Fixture { dir, paths }
    }

    #[test]
    fn paths_of_the_sandbox_are_resolved_also_for_new_files() {
        let Fixture { paths, .. } = &fixture();
        let workspace = paths.workspace();
        fs::create_dir_all(workspace.join("a/b")).unwrap();
        fs::write(workspace.join("a/file"), "").unwrap();
        symlink("b", workspace.join("a/inner")).unwrap();
        symlink("../home", paths.root.join("workspace/home-link")).unwrap();
        for (path, expected) in [
            (workspace.clone(), workspace.clone()),
            (workspace.join("a/file"), workspace.join("a/file")),
            (workspace.join("a/../a/./file"), workspace.join("a/file")),
            (workspace.join("a/inner/new/x"), workspace.join("a/b/new/x")),
            (workspace.join("a/file/x"), workspace.join("a/file/x")),
            (workspace.join("home-link/x"), paths.home().join("x")),
            (paths.home().join("x"), paths.home().join("x")),
            (paths.tmp().join("x"), paths.tmp().join("x")),
            (PathBuf::from("workspace/a"), workspace.join("a")),
        ] {
            let resolved = resolve(paths, path.to_str().unwrap());
            assert_eq!(resolved, Some(expected), "{}", path.display());
        }
    }

    #[test]
    fn a_directory_is_resolved_at_the_path_where_the_sandbox_sees_it() {
        let Fixture { paths, .. } = &fixture();
        let workspace = paths.workspace();
        fs::create_dir(workspace.join("a")).unwrap();
        symlink("a", workspace.join("inner")).unwrap();
        symlink("/etc", workspace.join("absolute")).unwrap();
        symlink("../home", workspace.join("home")).unwrap();
        for (path, expected) in [
            ("/workspace/new/x", Some("/workspace/new/x")),
            ("/workspace/inner/x", Some("/workspace/a/x")),
            ("/workspace/../workspace/a", Some("/workspace/a")),
            ("/workspace/absolute/passwd", None),
            ("/workspace/home/x", None),
            ("/workspaces/x", None),
            ("workspace/x", None),
        ] {
            let resolved = resolve_shown(&workspace, "/workspace", path);
            assert_eq!(resolved, expected.map(PathBuf::from), "{path}");
        }
    }

    #[test]
    fn no_path_and_no_link_escapes() {
        let Fixture { dir, paths } = &fixture();
        let workspace = paths.workspace();
        symlink("/etc", workspace.join("absolute")).unwrap();
        symlink("../../../master.key", workspace.join("relative")).unwrap();
        symlink("../process.json", workspace.join("state")).unwrap();
        symlink("/proc/self/root", workspace.join("magic")).unwrap();
        symlink("../../../new", workspace.join("dangling")).unwrap();
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        for path in [
            text(workspace.join("../../../master.key")),
            text(workspace.join("absolute/passwd")),
            text(workspace.join("absolute/none")),
            text(workspace.join("relative")),
            text(workspace.join("state")),
            text(workspace.join("magic/etc/passwd")),
            text(workspace.join("dangling")),
            text(paths.state()),
            text(paths.root.clone()),
            text(paths.short.clone()),
            text(dir.path().join("master.key")),
            "/etc/passwd".to_owned(),
            "/".to_owned(),
            "../../master.key".to_owned(),
            "workspace/relative".to_owned(),
            "workspace/absolute/passwd".to_owned(),
        ] {
            assert_eq!(resolve(paths, &path), None, "{path}");
        }
    }

    #[test]
    fn links_are_not_followed_without_openat2() {
        let Fixture { paths, .. } = &fixture();
        let workspace = paths.workspace();
        fs::create_dir_all(workspace.join("a/b")).unwrap();
        symlink("b", workspace.join("a/inner")).unwrap();
        let dir = open(&workspace, PATH_FLAGS | OFlags::DIRECTORY, Mode::empty()).unwrap();
        assert!(open_without_links(&dir, Path::new("a/b")).is_ok());
        let refused = |path: &str| open_without_links(&dir, Path::new(path)).unwrap_err();
        assert_eq!(refused("a/inner"), Errno::LOOP);
        assert_eq!(refused("a/none"), Errno::NOENT);
    }
}
