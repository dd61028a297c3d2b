//! Skills in a local directory. Blocking, so callers use a blocking thread.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use domain::error::chain;
use domain::skill::ListedSkill;

use crate::front_matter::{self, FrontMatter, MAX_FRONT_MATTER_BYTES};
use crate::naming::{SKILL_FILE, in_order, is_hidden, is_markdown, skill};

/// Files and directories of one tree that are visited.
const MAX_ENTRIES: usize = 10_000;
/// Skills of one tree.
const MAX_SKILLS: usize = 1_000;
/// Nesting of directories.
const MAX_DEPTH: usize = 6;

/// Cached front matter of a file. `None` for a file that is not a skill.
#[derive(Debug, Clone)]
struct CachedSkill {
    modified: Option<SystemTime>,
    length: u64,
    front_matter: Option<FrontMatter>,
}

/// A directory with skills and their cached front matter.
#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
    source: &'static str,
    files: HashMap<PathBuf, CachedSkill>,
}

impl Directory {
    pub(crate) fn new(root: PathBuf, source: &'static str) -> Self {
        Self {
            root,
            source,
            files: HashMap::new(),
        }
    }

    /// The skills by name. Reads only files that changed since the last call. A missing directory has no skills. Unreadable files
    /// are logged once and omitted.
    pub(crate) fn skills(&mut self) -> Vec<ListedSkill> {
        let mut walk = match DirectoryWalk::new(&self.root) {
            Ok(walk) => walk,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                let path = self.root.display();
                tracing::warn!(%path, error = %chain(&error), "cannot read the directory of skills {path}: {error}");
                return Vec::new();
            }
        };
        walk.visit(&self.root, "", 0);
        if walk.entries >= MAX_ENTRIES || walk.files.len() > MAX_SKILLS {
            let path = self.root.display();
            tracing::warn!(
                %path,
                "{path} has more than {MAX_SKILLS} skills or {MAX_ENTRIES} files; the rest is omitted"
            );
        }
        let mut cached = std::mem::take(&mut self.files);
        let mut skills = Vec::new();
        for (path, file) in walk.files.into_iter().take(MAX_SKILLS) {
            let entry = read_if_changed(&file, cached.remove(&file));
            if let Some(front_matter) = &entry.front_matter {
                skills.push(skill(&path, front_matter.clone(), self.source));
            }
            self.files.insert(file, entry);
        }
        in_order(skills)
    }
}

/// Returns the cached front matter, or reads a changed file.
fn read_if_changed(path: &Path, cached: Option<CachedSkill>) -> CachedSkill {
    let (modified, length) = match fs::metadata(path) {
        Ok(metadata) => (metadata.modified().ok(), metadata.len()),
        Err(_) => (None, 0),
    };
    let is_unchanged = |cached: &CachedSkill| {
        modified.is_some() && cached.modified == modified && cached.length == length
    };
    if let Some(cached) = cached.filter(is_unchanged) {
        return cached;
    }
    let front_matter = match read(path) {
        Ok(front_matter) => front_matter,
        Err(reason) => {
            let path = path.display();
            tracing::warn!(%path, "skill {path} is omitted: {reason}");
            None
        }
    };
    CachedSkill {
        modified,
        length,
        front_matter,
    }
}

fn read(path: &Path) -> Result<Option<FrontMatter>, String> {
    let mut beginning = Vec::new();
    let max = u64::try_from(MAX_FRONT_MATTER_BYTES).unwrap_or(u64::MAX);
    let file = File::open(path).map_err(|error| error.to_string())?;
    let read = file.take(max).read_to_end(&mut beginning);
    read.map_err(|error| error.to_string())?;
    front_matter::parse(&beginning)
}

/// Finds the files that may be skills.
struct DirectoryWalk {
    /// The root, resolved. Symbolic links must not lead out of it.
    inside: PathBuf,
    entries: usize,
    /// The path from the root, with `/`, and the file.
    files: Vec<(String, PathBuf)>,
}

impl DirectoryWalk {
    fn new(root: &Path) -> io::Result<Self> {
        Ok(Self {
            inside: root.canonicalize()?,
            entries: 0,
            files: Vec::new(),
        })
    }

    fn visit(&mut self, directory: &Path, path: &str, depth: usize) {
        let Ok(entries) = fs::read_dir(directory) else {
            let path = directory.display();
            tracing::warn!(%path, "cannot read the directory of skills {path}; check its permissions");
            return;
        };
        let left = MAX_ENTRIES.saturating_sub(self.entries);
        let mut names: Vec<String> = entries
            .take(left)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        self.entries += names.len();
        names.retain(|name| !is_hidden(name));
        names.sort_unstable();
        if depth > 0 && names.iter().any(|name| name == SKILL_FILE) {
            // All other files belong to that skill.
            names.retain(|name| name == SKILL_FILE);
        }
        for name in names {
            let file = directory.join(&name);
            let below = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}/{name}")
            };
            let Some(metadata) = self.metadata(&file) else {
                continue;
            };
            if metadata.is_dir() && depth < MAX_DEPTH {
                self.visit(&file, &below, depth + 1);
            } else if metadata.is_file() && is_markdown(&name) && self.files.len() <= MAX_SKILLS {
                self.files.push((below, file));
            }
        }
    }

    /// The metadata of an entry. Follows symbolic links within the root, because files of Kubernetes volumes are such links.
    fn metadata(&self, path: &Path) -> Option<Metadata> {
        let metadata = fs::symlink_metadata(path).ok()?;
        if !metadata.is_symlink() {
            return Some(metadata);
        }
        let target = path.canonicalize().ok()?;
        if !target.starts_with(&self.inside) {
            let path = path.display();
            tracing::warn!(%path, "the link {path} is ignored: it leads out of the directory of skills");
            return None;
        }
        fs::metadata(&target).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn names(directory: &mut Directory) -> Vec<String> {
        directory
            .skills()
            .into_iter()
            .map(|skill| skill.name)
            .collect()
    }

    #[test]
    fn only_skill_files_are_listed() {
        let root = tree(&[
            ("git.md", "---\ntriggers: [git]\n---\nText"),
            ("README.md", "---\nname: readme\n---\n"),
            ("plain.md", "no front matter"),
            ("broken.md", "---\nname: [\n---\n"),
            ("notes.txt", "---\nname: notes\n---\n"),
            ("deep/er/docker.md", "---\ntype: repo\n---\n"),
            ("pdf/SKILL.md", "---\ndescription: x\n---\n"),
            ("pdf/references/forms.md", "---\nname: forms\n---\n"),
            (".hidden/secret.md", "---\nname: secret\n---\n"),
            ("twice.md", "---\nname: git\ntype: repo\n---\n"),
        ]);
        let mut directory = Directory::new(root.path().to_owned(), "user");
        let skill = |name: &str, kind: &str, triggers: Option<&str>| ListedSkill {
            name: name.to_owned(),
            kind: kind.to_owned(),
            source: "user".to_owned(),
            triggers: triggers.map(|word| vec![word.to_owned()]),
        };
        let expected = [
            skill("docker", "repo", None),
            skill("git", "knowledge", Some("git")),
            skill("pdf", "knowledge", None),
        ];
        assert_eq!(directory.skills(), expected);
        // The same from the cache.
        assert_eq!(directory.skills(), expected);
    }

    #[test]
    fn changed_files_are_read_again() {
        let root = tree(&[("a.md", "---\nname: one\n---\n")]);
        let mut directory = Directory::new(root.path().to_owned(), "user");
        assert_eq!(names(&mut directory), ["one"]);
        let file = root.path().join("a.md");
        fs::write(&file, "---\nname: two\n---\n").unwrap();
        let later = SystemTime::now() + Duration::from_secs(5);
        File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(later)
            .unwrap();
        assert_eq!(names(&mut directory), ["two"]);
        fs::remove_file(&file).unwrap();
        assert_eq!(names(&mut directory), [""; 0]);
        assert!(directory.files.is_empty(), "removed files leave the cache");
        let mut missing = Directory::new(root.path().join("missing"), "user");
        assert_eq!(names(&mut missing), [""; 0]);
    }

    #[test]
    fn links_out_of_the_directory_and_loops_are_ignored() {
        let outside = tree(&[("secret.md", "---\nname: secret\n---\n")]);
        let root = tree(&[
            ("..data/real.md", "---\nname: real\n---\n"),
            ("sub/a.md", "---\nname: a\n---\n"),
        ]);
        let at = |path: &str| root.path().join(path);
        symlink(outside.path().join("secret.md"), at("file.md")).unwrap();
        symlink(outside.path(), at("directory")).unwrap();
        symlink(at("..data/real.md"), at("real.md")).unwrap();
        symlink(root.path(), at("sub/loop")).unwrap();
        symlink(at("nowhere"), at("dangling.md")).unwrap();
        let mut directory = Directory::new(root.path().to_owned(), "user");
        assert_eq!(names(&mut directory), ["a", "real"]);
    }

    #[test]
    fn the_size_of_a_tree_is_limited() {
        let root = tempfile::tempdir().unwrap();
        for n in 0..MAX_SKILLS + 20 {
            fs::write(root.path().join(format!("{n:05}.md")), "---\n---\n").unwrap();
        }
        let mut directory = Directory::new(root.path().to_owned(), "user");
        assert_eq!(directory.skills().len(), MAX_SKILLS);
        // Only the beginning of a file is read.
        let file = File::create(root.path().join("00000.md")).unwrap();
        file.set_len(1 << 40).unwrap();
        assert_eq!(directory.skills().len(), MAX_SKILLS - 1);
    }
}
