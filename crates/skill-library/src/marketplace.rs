//! What a marketplace's repository has: the plugins and skills of its manifest or, without one, the skills in `skills` and
//! `.skills`. A plugin's own skills are not looked into: clients choose plugins.

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

/// Repositories that are fetched at the same time.
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
/// Skills of one marketplace.
const MAX_MARKETPLACE_SKILLS: usize = 500;
/// Age at which directories of interrupted fetches are removed.
const STALE_SCRATCH_TTL: Duration = Duration::from_secs(60 * 60);

/// Fetches repositories to scratch directories.
#[derive(Debug)]
pub(crate) struct MarketplaceFetcher {
    scratch: PathBuf,
    authorities: Option<PathBuf>,
    turns: Arc<Semaphore>,
}

impl MarketplaceFetcher {
    pub(crate) fn new(scratch: PathBuf, authorities: Option<PathBuf>) -> Self {
        Self {
            scratch,
            authorities,
            turns: Arc::new(Semaphore::new(MAX_CONCURRENT_FETCHES)),
        }
    }

    pub(crate) async fn offer(&self, of: &Marketplace) -> Result<MarketplaceContents, SkillError> {
        let turn = timeout(FETCH_QUEUE_TIMEOUT, Arc::clone(&self.turns).acquire_owned()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(unavailable(
                "other marketplaces are being fetched; try again in a minute",
            ));
        };
        let scratch = self.scratch.clone();
        let made = tokio::task::spawn_blocking(move || make(&scratch)).await;
        let made = made.map_err(|error| chain(&error));
        let made = made.and_then(|made| made.map_err(|error| chain(&error)));
        let directory = made.map_err(|error| {
            tracing::error!(error, "no directory for a marketplace: {error}");
            unavailable("this service has no place to fetch it to")
        })?;
        let git = Git::new(directory.0.path(), self.authorities.as_deref());
        let offer = fetched(&git, of).await;
        drop(directory);
        offer.map_err(|failed| in_words(of, failed))
    }
}

/// A directory that is removed on drop, on a blocking thread.
struct ScratchDirectory(Arc<TempDir>);

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let directory = Arc::clone(&self.0);
        // Without a runtime (it is ending) it goes where it is.
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn_blocking(move || drop(directory)));
        }
    }
}

/// Creates a directory, and removes stale ones of killed processes.
fn make(scratch: &Path) -> std::io::Result<ScratchDirectory> {
    fs::create_dir_all(scratch)?;
    for entry in fs::read_dir(scratch)?.flatten() {
        let modified = entry.metadata().and_then(|it| it.modified());
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

fn unavailable(why: &str) -> SkillError {
    SkillError::Unavailable(why.to_owned())
}

/// Converts a git error for clients. Git's own message contains local paths and addresses, so it goes to the log only.
fn in_words(of: &Marketplace, failed: GitFailure) -> SkillError {
    let (url, name) = (&of.url, &of.name);
    tracing::info!(marketplace = name, %url, error = %chain(&failed), "marketplace {name} cannot be read: {failed}");
    match failed {
        GitFailure::Unusable(why) => SkillError::Unavailable(why),
        GitFailure::TooLong => unavailable("fetching it takes too long"),
        GitFailure::TooMuch => unavailable("it has too many files"),
        GitFailure::Refused(_) => unavailable(
            "it cannot be fetched. It must be a public repository of at most 64 MiB, and have the branch, tag or commit",
        ),
    }
}

/// Failures that have words of their own are offers that failed; the rest is git's.
async fn fetched(git: &Git, of: &Marketplace) -> Result<MarketplaceContents, GitFailure> {
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
        Err(GitFailure::Refused(_)) if of.repo_path.is_some() => {
            let why = "the repository has no such directory (`repo_path`)";
            return Err(GitFailure::Unusable(why.to_owned()));
        }
        listed => files(&listed?),
    };
    let source = format!("marketplace:{}", of.name);
    let manifest = manifest::MANIFEST_PATHS
        .iter()
        .find_map(|place| listed.iter().find(|file| file.path == *place));
    match manifest {
        Some(manifest) => by_manifest(git, manifest, &source).await,
        None => loose(git, &listed, &source).await,
    }
}

async fn by_manifest(
    git: &Git,
    manifest: &GitFile,
    source: &str,
) -> Result<MarketplaceContents, GitFailure> {
    let front_matter_error = |why: &str| GitFailure::Unusable(format!("its manifest {why}"));
    if manifest.length > MAX_FILE_BYTES {
        return Err(front_matter_error("is larger than 256 KiB"));
    }
    let text = contents(git, &[manifest]).await?;
    let text = text.first().map(Vec::as_slice).unwrap_or_default();
    let (plugins, skills) = manifest::parse(text).map_err(front_matter_error)?;
    let listed = |name| ListedSkill {
        name,
        kind: "knowledge".to_owned(),
        source: source.to_owned(),
        triggers: None,
    };
    let skills = in_order(skills.into_iter().map(listed).collect());
    Ok(MarketplaceContents { skills, plugins })
}

async fn loose(
    git: &Git,
    listed: &[GitFile],
    source: &str,
) -> Result<MarketplaceContents, GitFailure> {
    let wanted = wanted(listed);
    let texts = contents(git, &wanted).await?;
    let mut skills = Vec::new();
    for (file, text) in wanted.iter().zip(texts) {
        match front_matter::parse(&text) {
            Ok(Some(says)) => skills.push(skill(&file.path, says, source)),
            Ok(None) => {}
            Err(why) => {
                let path = &file.path;
                tracing::info!(path, "skill {path} of {source} is left out: {why}");
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

/// A file of the repository; links and submodules are none.
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
fn wanted(listed: &[GitFile]) -> Vec<&GitFile> {
    let homes: Vec<&str> = listed
        .iter()
        .filter_map(|file| file.path.strip_suffix(SKILL_FILE)?.strip_suffix('/'))
        .collect();
    let is_inside = |path: &str, home: &str| {
        path.strip_prefix(home)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    let may_be = |file: &&GitFile| {
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
        .filter(may_be)
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
    let asked: String = objects.collect();
    let heads = 128 * u64::try_from(files.len()).unwrap_or(u64::MAX / 128);
    let most = files.iter().map(|file| file.length).sum::<u64>() + heads;
    let said = git
        .run(
            &["cat-file", "--batch"],
            asked.as_bytes(),
            most,
            READ_TIMEOUT,
        )
        .await?;
    let mut rest = said.as_slice();
    let mut texts = Vec::with_capacity(files.len());
    for file in files {
        let length = usize::try_from(file.length).unwrap_or(usize::MAX);
        let head = rest
            .iter()
            .position(|byte| *byte == b'\n')
            .map(|end| end + 1);
        let text = head.and_then(|head| rest.get(head..)?.split_at_checked(length));
        let Some((text, after)) = text else {
            return Err(GitFailure::Refused("an object is missing".to_owned()));
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
    fn links_and_submodules_are_no_files() {
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
    fn only_loose_skills_are_wanted() {
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
        let paths: Vec<_> = wanted(&listed)
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
    fn what_is_read_has_bounds() {
        let blob = |n: usize, length| GitFile {
            path: format!("skills/{n}.md"),
            object: "a".repeat(40),
            length,
        };
        let many: Vec<_> = (0..MAX_MARKETPLACE_SKILLS + 5)
            .map(|n| blob(n, 1))
            .collect();
        assert_eq!(wanted(&many).len(), MAX_MARKETPLACE_SKILLS);
        let large: Vec<_> = (0..30).map(|n| blob(n, MAX_FILE_BYTES)).collect();
        assert_eq!(wanted(&large).len(), 16);
        assert!(wanted(&[blob(1, MAX_FILE_BYTES + 1)]).is_empty());
    }

    #[test]
    fn left_overs_go() {
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
        let made = make(scratch.path()).unwrap();
        assert!(!old.exists() && new.exists() && made.0.path().exists());
    }
}
