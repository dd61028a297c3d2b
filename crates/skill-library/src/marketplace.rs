//! Lists the contents of a marketplace's repository: the plugins and skills of its manifest or, without one, the skills in `skills`
//! and `.skills`. It does not list the skills of plugins, because clients choose plugins.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use domain::error::chain;
use domain::skill::{ListedSkill, Marketplace, MarketplaceContents, SkillError};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::front_matter;
use crate::git::{Git, GitFailure};
use crate::manifest;
use crate::naming::{SKILL_FILE, in_order, is_hidden, is_markdown, skill};

const MAX_CONCURRENT_FETCHES: usize = 4;
/// Timeouts of the wait for a free fetch, and of the fetch.
const FETCH_QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
const FETCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of reading the fetched repository.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of a list of files, of one file, and of all files that are read.
const MAX_LISTING_BYTES: u64 = 8 * 1024 * 1024;
const MAX_FILE_BYTES: u64 = 256 * 1024;
const MAX_TOTAL_BYTES: u64 = 4 * 1024 * 1024;
const MAX_MARKETPLACE_SKILLS: usize = 500;
/// Age at which directories of interrupted fetches are removed.
const STALE_SCRATCH_TTL: Duration = Duration::from_secs(60 * 60);

/// Fetches repositories to scratch directories.
#[derive(Debug)]
pub(crate) struct MarketplaceFetcher {
    scratch: PathBuf,
    ca_file: Option<PathBuf>,
    fetch_slots: Arc<Semaphore>,
}

impl MarketplaceFetcher {
    pub(crate) fn new(scratch: PathBuf, ca_file: Option<PathBuf>) -> Self {
        Self {
            scratch,
            ca_file,
            fetch_slots: Arc::new(Semaphore::new(MAX_CONCURRENT_FETCHES)),
        }
    }

    pub(crate) async fn offer(&self, of: &Marketplace) -> Result<MarketplaceContents, SkillError> {
        let slot = Arc::clone(&self.fetch_slots).acquire_owned();
        let Ok(Ok(_slot)) = timeout(FETCH_QUEUE_TIMEOUT, slot).await else {
            return Err(unavailable(
                "other marketplaces are being fetched; try again in a minute",
            ));
        };
        let scratch = self.scratch.clone();
        let created = tokio::task::spawn_blocking(move || create_scratch(&scratch)).await;
        let created = created.map_err(|error| chain(&error));
        let created = created.and_then(|result| result.map_err(|error| chain(&error)));
        let directory = created.map_err(|error| {
            let path = self.scratch.display();
            tracing::error!(error, %path, "cannot create a directory for a marketplace in {path}: {error}");
            unavailable("this service cannot create a directory for it; ask its operator to check the log")
        })?;
        let git = Git::new(directory.0.path(), self.ca_file.as_deref());
        let offer = fetch_contents(&git, of).await;
        drop(directory);
        offer.map_err(|failure| client_error(of, failure))
    }
}

/// A directory that is removed on drop, on a blocking thread.
struct ScratchDirectory(Arc<TempDir>);

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let directory = Arc::clone(&self.0);
        // While the runtime ends, the directory is removed here.
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn_blocking(move || drop(directory)));
        }
    }
}

/// Creates a directory, and removes stale ones of killed processes.
fn create_scratch(scratch: &Path) -> std::io::Result<ScratchDirectory> {
    fs::create_dir_all(scratch)?;
    for entry in fs::read_dir(scratch)?.flatten() {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified
            .ok()
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_some_and(|age| age > STALE_SCRATCH_TTL) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let directory = tempfile::Builder::new()
        .prefix("fetch-")
        .tempdir_in(scratch)?;
    Ok(ScratchDirectory(Arc::new(directory)))
}

pub(crate) fn unavailable(reason: &str) -> SkillError {
    SkillError::Unavailable(reason.to_owned())
}

/// Converts a git error for clients. Git's own message contains local paths and addresses, so it goes to the log only.
fn client_error(of: &Marketplace, failure: GitFailure) -> SkillError {
    let (url, name) = (&of.url, &of.name);
    tracing::info!(marketplace = name, %url, error = %chain(&failure), "marketplace {name} cannot be read: {failure}");
    match failure {
        GitFailure::Unusable(reason) => SkillError::Unavailable(reason),
        GitFailure::TimedOut => unavailable("fetching it takes too long"),
        GitFailure::OutputTooLarge => unavailable("it has too many files"),
        GitFailure::Failed(_) => unavailable(
            "it cannot be fetched. It must be a public repository of at most 64 MiB, and have the branch, tag or commit",
        ),
    }
}

/// Fetches a repository and lists its contents.
async fn fetch_contents(git: &Git, of: &Marketplace) -> Result<MarketplaceContents, GitFailure> {
    git.check().await?;
    let reference = of.reference.as_deref().unwrap_or("HEAD");
    git.fetch(&of.url, &of.addresses, reference, FETCH_TIMEOUT)
        .await?;
    let tree = match of.repo_path.as_deref().map(plain_path) {
        None => "FETCH_HEAD^{tree}".to_owned(),
        Some(path) => format!("FETCH_HEAD:{path}"),
    };
    let listed = git
        .run(
            &["ls-tree", "-r", "-z", "-l", &tree],
            b"",
            MAX_LISTING_BYTES,
            READ_TIMEOUT,
        )
        .await;
    let listed = match listed {
        Err(GitFailure::Failed(_)) if of.repo_path.is_some() => {
            let reason = "the repository has no such directory (`repo_path`)";
            return Err(GitFailure::Unusable(reason.to_owned()));
        }
        listed => files(&listed?),
    };
    let source = format!("marketplace:{}", of.name);
    let manifest = manifest::MANIFEST_PATHS
        .iter()
        .find_map(|path| listed.iter().find(|file| file.path == *path));
    match manifest {
        Some(manifest) => listed_in_manifest(git, manifest, &source).await,
        None => skills_without_manifest(git, &listed, &source).await,
    }
}

async fn listed_in_manifest(
    git: &Git,
    manifest: &GitFile,
    source: &str,
) -> Result<MarketplaceContents, GitFailure> {
    let manifest_error = |reason: &str| GitFailure::Unusable(format!("its manifest {reason}"));
    if manifest.length > MAX_FILE_BYTES {
        return Err(manifest_error("is larger than 256 KiB"));
    }
    let text = contents(git, &[manifest]).await?;
    let text = text.first().map(Vec::as_slice).unwrap_or_default();
    let (plugins, skills) = manifest::parse(text).map_err(manifest_error)?;
    let listed = |name| ListedSkill {
        name,
        kind: "knowledge".to_owned(),
        source: source.to_owned(),
        triggers: None,
    };
    let skills = in_order(skills.into_iter().map(listed).collect());
    Ok(MarketplaceContents { skills, plugins })
}

async fn skills_without_manifest(
    git: &Git,
    listed: &[GitFile],
    source: &str,
) -> Result<MarketplaceContents, GitFailure> {
    let candidate_files = candidate_files(listed);
    let texts = contents(git, &candidate_files).await?;
    let mut skills = Vec::new();
    for (file, text) in candidate_files.iter().zip(texts) {
        match front_matter::parse(&text) {
            Ok(Some(front_matter)) => skills.push(skill(&file.path, front_matter, source)),
            Ok(None) => {}
            Err(reason) => {
                let path = &file.path;
                tracing::info!(path, "skill {path} of {source} is omitted: {reason}");
            }
        }
    }
    Ok(MarketplaceContents {
        skills: in_order(skills),
        plugins: Vec::new(),
    })
}

fn plain_path(path: &str) -> String {
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.collect::<Vec<_>>().join("/")
}

/// A regular file of the repository.
#[derive(Debug, PartialEq, Eq)]
struct GitFile {
    path: String,
    object: String,
    length: u64,
}

/// Reads `<mode> blob <object> <length>\t<path>` records.
fn files(listed: &[u8]) -> Vec<GitFile> {
    let read = |record: &[u8]| {
        let record = std::str::from_utf8(record).ok()?;
        let (head, path) = record.split_once('\t')?;
        let mut head = head.split_ascii_whitespace();
        let (mode, kind) = (head.next()?, head.next()?);
        let (object, length) = (head.next()?, head.next()?.parse().ok()?);
        let is_file = matches!(mode, "100644" | "100755") && kind == "blob";
        is_file.then(|| GitFile {
            path: path.to_owned(),
            object: object.to_owned(),
            length,
        })
    };
    listed.split(|byte| *byte == 0).filter_map(read).collect()
}

/// Files that may be skills, within the limits.
fn candidate_files(listed: &[GitFile]) -> Vec<&GitFile> {
    let homes: Vec<&str> = listed
        .iter()
        .filter_map(|file| file.path.strip_suffix(SKILL_FILE)?.strip_suffix('/'))
        .collect();
    let is_inside = |path: &str, home: &str| {
        path.strip_prefix(home)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    let is_candidate = |file: &&GitFile| {
        let path = file.path.as_str();
        let (directory, name) = path.rsplit_once('/').unwrap_or_default();
        let Some(below) = ["skills/", ".skills/"]
            .iter()
            .find_map(|root| path.strip_prefix(root))
        else {
            return false;
        };
        let is_own = name == SKILL_FILE && !homes.iter().any(|home| is_inside(directory, home));
        let is_alone = is_markdown(name) && !homes.iter().any(|home| is_inside(path, home));
        (is_own || is_alone) && !below.split('/').any(is_hidden) && file.length <= MAX_FILE_BYTES
    };
    let mut left = MAX_TOTAL_BYTES;
    listed
        .iter()
        .filter(is_candidate)
        .take(MAX_MARKETPLACE_SKILLS)
        .take_while(|file| {
            let fits = file.length <= left;
            left = left.saturating_sub(file.length);
            fits
        })
        .collect()
}

/// Contents of these files, in order.
async fn contents(git: &Git, files: &[&GitFile]) -> Result<Vec<Vec<u8>>, GitFailure> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let objects = files.iter().flat_map(|file| [file.object.as_str(), "\n"]);
    let input: String = objects.collect();
    let heads = 128 * u64::try_from(files.len()).unwrap_or(u64::MAX / 128);
    let max_output = files.iter().map(|file| file.length).sum::<u64>() + heads;
    let output = git
        .run(
            &["cat-file", "--batch"],
            input.as_bytes(),
            max_output,
            READ_TIMEOUT,
        )
        .await?;
    let mut rest = output.as_slice();
    let mut texts = Vec::with_capacity(files.len());
    for file in files {
        let length = usize::try_from(file.length).unwrap_or(usize::MAX);
        let head = rest
            .iter()
            .position(|byte| *byte == b'\n')
            .map(|end| end + 1);
        let text = head.and_then(|head| rest.get(head..)?.split_at_checked(length));
        let Some((text, after)) = text else {
            return Err(GitFailure::Failed(format!(
                "git cat-file returned no object for {}",
                file.path
            )));
        };
        texts.push(text.to_vec());
        rest = after.get(1..).unwrap_or_default();
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(paths: &[&str]) -> Vec<GitFile> {
        let record = |path: &&str| format!("100644 blob {} {:>7}\t{path}\0", "a".repeat(40), 12);
        files(paths.iter().map(record).collect::<String>().as_bytes())
    }

    #[test]
    fn links_and_submodules_are_ignored() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let text = format!(
            "100644 blob {a}     12\tskills/x y.md\x00120000 blob {a}      5\tskills/link.md\x00160000 commit {b}       -\tsub\0"
        );
        let expected = GitFile {
            path: "skills/x y.md".to_owned(),
            object: a,
            length: 12,
        };
        assert_eq!(files(text.as_bytes()), [expected]);
    }

    #[test]
    fn candidates_are_skill_files_in_the_skill_directories() {
        let listed = listed(&[
            ".skills/hidden-root.md",
            "README.md",
            "plugins/p/skills/s/SKILL.md",
            "skills/.git/x.md",
            "skills/README.md",
            "skills/a.md",
            "skills/pdf/SKILL.md",
            "skills/pdf/inner/SKILL.md",
            "skills/pdf/references/forms.md",
            "skills/pdf/script.py",
        ]);
        let paths: Vec<_> = candidate_files(&listed)
            .iter()
            .map(|file| file.path.as_str())
            .collect();
        assert_eq!(
            paths,
            [
                ".skills/hidden-root.md",
                "skills/a.md",
                "skills/pdf/SKILL.md"
            ]
        );
    }

    #[test]
    fn the_number_and_size_of_candidates_are_limited() {
        let blob = |n: usize, length| GitFile {
            path: format!("skills/{n}.md"),
            object: "a".repeat(40),
            length,
        };
        let many: Vec<_> = (0..MAX_MARKETPLACE_SKILLS + 5)
            .map(|n| blob(n, 1))
            .collect();
        assert_eq!(candidate_files(&many).len(), MAX_MARKETPLACE_SKILLS);
        let large: Vec<_> = (0..30).map(|n| blob(n, MAX_FILE_BYTES)).collect();
        assert_eq!(candidate_files(&large).len(), 16);
        assert!(candidate_files(&[blob(1, MAX_FILE_BYTES + 1)]).is_empty());
    }

    #[test]
    fn stale_scratch_directories_are_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let (old, new) = (
            scratch.path().join("fetch-old"),
            scratch.path().join("fetch-new"),
        );
        for path in [&old, &new] {
            fs::create_dir(path).unwrap();
        }
        let long_ago = SystemTime::now() - 2 * STALE_SCRATCH_TTL;
        fs::File::open(&old)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let _inside = runtime.enter();
        let created = create_scratch(scratch.path()).unwrap();
        assert!(!old.exists() && new.exists() && created.0.path().exists());
    }
}
