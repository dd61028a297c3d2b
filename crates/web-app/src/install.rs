//! Installs a build into the data directory.
//!
//! ```text
//! <data>/web-app/
//!   lock                      held (flock) while something is installed
//!   1.20.0-<digest>/          a complete build: renamed from `new` after it was synced. Its installation deletes others
//!   new/, archive.tgz         an installation in progress, or what a crash left of it; the next one removes them
//! ```

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha512};
use tokio::time::{Instant, sleep};
use url::Url;

use crate::download::{InstallProgress, download};
use crate::error::WebAppError;
use crate::package::Package;
use crate::unpack::unpack;

/// Longer than a download and the unpacking together.
const LOCK_TIMEOUT: Duration = Duration::from_secs(45 * 60);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Where the archive comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstallSource {
    /// A registry, by the URL of its root.
    Registry(Url),
    /// A file on this machine.
    File(PathBuf),
}

/// Installs a package below a directory.
#[derive(Debug, Clone)]
pub struct Installer {
    package: Package,
    dir: PathBuf,
}

impl Installer {
    /// Installs into `<data_dir>/web-app`.
    #[must_use]
    pub fn new(package: Package, data_dir: &Path) -> Self {
        Self {
            package,
            dir: data_dir.join("web-app"),
        }
    }

    /// The directory of the installed build, if there is one. Blocks for a moment.
    #[must_use]
    pub fn find(&self) -> Option<PathBuf> {
        let dir = self.target();
        dir.is_dir().then_some(dir)
    }

    /// Installs the build unless it is installed, and returns its directory. Concurrent processes may call this: one
    /// installs, the others wait. A call that is dropped or killed leaves nothing that counts as installed.
    ///
    /// # Errors
    /// See [`WebAppError`].
    pub async fn install(
        &self,
        source: &InstallSource,
        progress: &InstallProgress<'_>,
    ) -> Result<PathBuf, WebAppError> {
        let dir = self.dir.clone();
        let lock = blocking(move || open_lock(&dir)).await?;
        self.wait_for(&lock, progress).await?;
        let installer = self.clone();
        let found = blocking(move || {
            let found = installer.find();
            if found.is_none() {
                installer.remove_remains()?;
            }
            Ok(found)
        });
        if let Some(dir) = found.await? {
            return Ok(dir);
        }
        let archive = match source {
            InstallSource::File(file) => file.clone(),
            InstallSource::Registry(registry) => {
                let url = self.package.archive_url(registry);
                let url = url.ok_or_else(|| WebAppError::Registry(registry.clone()))?;
                progress(&format!("downloading {url}"));
                let archive = self.archive();
                download(&url, &archive, progress).await?;
                archive
            }
        };
        progress("unpacking");
        let installer = self.clone();
        // The closure holds the lock, because it may outlive this future.
        blocking(move || {
            let _lock = lock;
            installer.unpack(&archive)
        })
        .await
    }

    fn target(&self) -> PathBuf {
        self.dir.join(self.package.directory_name())
    }

    fn archive(&self) -> PathBuf {
        self.dir.join("archive.tgz")
    }

    fn unfinished(&self) -> PathBuf {
        self.dir.join("new")
    }

    async fn wait_for(
        &self,
        lock: &File,
        progress: &InstallProgress<'_>,
    ) -> Result<(), WebAppError> {
        let started = Instant::now();
        let mut is_reported = false;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) if started.elapsed() < LOCK_TIMEOUT => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(WebAppError::TooLong("an installation by another process"));
                }
                Err(TryLockError::Error(error)) => {
                    return Err(WebAppError::io("lock", self.dir.join("lock"))(error));
                }
            }
            if !is_reported {
                is_reported = true;
                progress("waiting for another process that installs the same");
            }
            // The kernel has no event for a released lock, except by blocking a thread.
            sleep(LOCK_POLL_INTERVAL).await;
        }
    }

    fn remove_remains(&self) -> Result<(), WebAppError> {
        let (unfinished, archive) = (self.unfinished(), self.archive());
        if_exists(fs::remove_dir_all(&unfinished))
            .map_err(WebAppError::io("remove", &unfinished))?;
        if_exists(fs::remove_file(&archive)).map_err(WebAppError::io("remove", &archive))
    }

    /// Checks and unpacks the archive. The rename makes the build visible, after everything in it is on the disk.
    fn unpack(&self, archive: &Path) -> Result<PathBuf, WebAppError> {
        self.check(archive)?;
        let (unfinished, target) = (self.unfinished(), self.target());
        create_private(&unfinished)?;
        unpack(archive, &unfinished)?;
        let synced = || {
            let dir = File::open(&unfinished)?;
            rustix::fs::syncfs(&dir)?;
            fs::rename(&unfinished, &target)?;
            File::open(&self.dir)?.sync_all()
        };
        synced().map_err(WebAppError::io("finish", &target))?;
        if_exists(fs::remove_file(self.archive()))
            .map_err(WebAppError::io("remove", self.archive()))?;
        self.remove_others();
        Ok(target)
    }

    /// Deletes the builds of other releases: services that serve one have it in memory. Each is renamed first, so that a crash
    /// leaves no half of a build that counts as installed. What cannot be deleted does no harm.
    fn remove_others(&self) {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let own = self.package.directory_name();
        for entry in entries.filter(|entry| entry.file_name() != *own) {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let unfinished = self.unfinished();
                let renamed = fs::rename(entry.path(), &unfinished);
                let _ = renamed.and_then(|()| fs::remove_dir_all(&unfinished));
            }
        }
    }

    fn check(&self, archive: &Path) -> Result<(), WebAppError> {
        let found = digest(archive).map_err(WebAppError::io("read", archive))?;
        if found == self.package.sha512 {
            return Ok(());
        }
        Err(WebAppError::Integrity {
            name: self.package.name,
            version: self.package.version,
            found,
            expected: self.package.sha512,
        })
    }
}

fn open_lock(dir: &Path) -> Result<File, WebAppError> {
    create_private(dir)?;
    let path = dir.join("lock");
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(&path).map_err(WebAppError::io("open", &path))
}

fn create_private(dir: &Path) -> Result<(), WebAppError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    created.map_err(WebAppError::io("create", dir))
}

fn digest(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut buffer) = (Sha512::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(STANDARD.encode(hash.finalize())),
            count => hash.update(&buffer[..count]),
        }
    }
}

fn if_exists(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Runs file-system work off the async workers.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WebAppError> + Send + 'static,
) -> Result<T, WebAppError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(WebAppError::Archive("the installation was stopped".into())))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::unpack::tests::archive;
    use crate::{WebApp, WebAppError};

    struct Fixture {
        dir: tempfile::TempDir,
        file: PathBuf,
        content: Vec<u8>,
        installer: Installer,
    }

    impl Fixture {
        fn new() -> Self {
            let content = archive(&[
                ("package/build/index.html", "<head></head>"),
                ("package/build/assets/a.js", "a()"),
            ]);
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("x.tgz");
            fs::write(&file, &content).unwrap();
            let sha512 = digest(&file).unwrap().leak();
            let package = Package {
                name: "@scope/name",
                version: "1.0.0",
                sha512,
            };
            let installer = Installer::new(package, &dir.path().join("data"));
            Self {
                dir,
                file,
                content,
                installer,
            }
        }

        fn source(&self) -> InstallSource {
            InstallSource::File(self.file.clone())
        }

        /// The entries of the directory, without the lock.
        fn entries(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.installer.dir).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name != "lock").collect()
        }
    }

    /// A registry that sends one response to each request, in order.
    async fn registry(responses: Vec<Vec<u8>>) -> (Url, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/npm", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let serve = async move {
            for response in responses {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = vec![0; 4096];
                let count = stream.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..count]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default();
                log.lock().unwrap().push(path.to_owned());
                stream.write_all(&response).await.unwrap();
            }
        };
        tokio::task::spawn_local(serve);
        (url.parse().unwrap(), asked)
    }

    fn ok(content: &[u8]) -> Vec<u8> {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            content.len()
        );
        [head.as_bytes(), content].concat()
    }

    #[tokio::test]
    async fn a_file_is_installed_once_and_can_be_served() {
        let fixture = Fixture::new();
        assert_eq!(fixture.installer.find(), None);
        let installed = fixture.installer.install(&fixture.source(), &|_| {}).await;
        let dir = installed.unwrap();
        assert_eq!(fixture.installer.find(), Some(dir.clone()));
        assert!(WebApp::load(&dir).unwrap().file("/assets/a.js").is_some());
        assert_eq!(fixture.entries().len(), 1);
        // The file is not needed again.
        fs::remove_file(&fixture.file).unwrap();
        let again = fixture.installer.install(&fixture.source(), &|_| {}).await;
        assert_eq!(again.unwrap(), dir);
    }

    #[tokio::test]
    async fn what_a_crash_left_is_removed() {
        let fixture = Fixture::new();
        let unfinished = fixture.installer.unfinished();
        fs::create_dir_all(unfinished.join("assets")).unwrap();
        fs::write(unfinished.join("assets/old.js"), "old").unwrap();
        fs::write(fixture.installer.archive(), "half").unwrap();
        assert_eq!(fixture.installer.find(), None);
        let installed = fixture.installer.install(&fixture.source(), &|_| {}).await;
        assert!(!installed.unwrap().join("assets/old.js").exists());
        assert_eq!(fixture.entries().len(), 1);
    }

    #[tokio::test]
    async fn builds_of_other_releases_are_removed() {
        let mut fixture = Fixture::new();
        let old = fixture.installer.install(&fixture.source(), &|_| {}).await;
        fixture.installer.package.version = "1.1.0";
        let new = fixture.installer.install(&fixture.source(), &|_| {}).await;
        assert_eq!(fixture.installer.find(), Some(new.unwrap()));
        assert!(!old.unwrap().exists());
        assert_eq!(fixture.entries().len(), 1);
    }

    #[tokio::test]
    async fn another_archive_is_refused() {
        let fixture = Fixture::new();
        fs::write(&fixture.file, archive(&[("package/build/index.html", "x")])).unwrap();
        let error = fixture.installer.install(&fixture.source(), &|_| {}).await;
        let error = error.unwrap_err();
        assert!(matches!(error, WebAppError::Integrity { .. }), "{error}");
        assert_eq!(fixture.installer.find(), None);
        assert!(fixture.dir.path().join("x.tgz").exists());
    }

    #[tokio::test]
    async fn a_registry_may_redirect() {
        let fixture = Fixture::new();
        let redirect = b"HTTP/1.1 302 Found\r\nlocation: /blob\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let responses = vec![redirect.to_vec(), ok(&fixture.content)];
                let (url, asked) = registry(responses).await;
                let source = InstallSource::Registry(url);
                let installed = fixture.installer.install(&source, &|_| {}).await;
                assert!(installed.unwrap().is_dir());
                let asked = asked.lock().unwrap();
                assert_eq!(*asked, ["/npm/@scope/name/-/name-1.0.0.tgz", "/blob"]);
            })
            .await;
        assert_eq!(fixture.entries().len(), 1);
    }

    #[tokio::test]
    async fn failures_of_a_registry_install_nothing() {
        let fixture = Fixture::new();
        let local = tokio::task::LocalSet::new();
        let half = ok(&fixture.content);
        let half = half[..half.len() - 5].to_vec();
        for (response, expected) in [
            (
                b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
                "answers 404",
            ),
            (half, "cannot download"),
            (ok(b"other"), "digest"),
        ] {
            local
                .run_until(async {
                    let (url, _) = registry(vec![response]).await;
                    let source = InstallSource::Registry(url);
                    let error = fixture.installer.install(&source, &|_| {}).await;
                    let error = error.unwrap_err().to_string();
                    assert!(error.contains(expected), "{error}");
                    assert_eq!(fixture.installer.find(), None);
                })
                .await;
        }
    }
}
