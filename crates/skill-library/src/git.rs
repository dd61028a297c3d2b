//! Runs `git` on untrusted repositories: without credentials, prompts, other protocols and other hosts, and without a
//! working tree (so without hooks, filters and links). Limits time, output, memory and disk.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use url::Url;

/// `PATH` of git.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Starts the program under limits: files of 64 MiB (in the units of POSIX, 512 bytes) and 2 GiB of memory.
const GIT_WITH_ULIMITS: &str = "ulimit -f 131072 && ulimit -v 2097152 && exec git \"$@\"";
/// Maximum number of bytes of standard error that are kept for the log.
const MAX_STDERR_BYTES: u64 = 4 * 1024;
/// The first release with `http.curloptResolve`, which pins the addresses of a name.
const MIN_GIT_VERSION: (u32, u32) = (2, 37);

/// Error of a git command. The text is for the log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitFailure {
    /// A reason that clients may read, for example that git is not installed.
    #[error("{0}")]
    Unusable(String),
    #[error("git did not end within its timeout")]
    TimedOut,
    #[error("the output of git exceeds its limit")]
    OutputTooLarge,
    /// Git failed with this message, which must not reach clients.
    #[error("{0}")]
    Failed(String),
}

impl From<io::Error> for GitFailure {
    fn from(error: io::Error) -> Self {
        Self::Unusable(format!("git cannot be run: {error}"))
    }
}

/// Runs git in one directory.
#[derive(Debug)]
pub(crate) struct Git {
    directory: PathBuf,
    ca_file: Option<PathBuf>,
}

impl Git {
    /// `directory` is empty and has no other user. `ca_file` is a file of certificate authorities for git.
    pub(crate) fn new(directory: &Path, ca_file: Option<&Path>) -> Self {
        Self {
            directory: directory.to_owned(),
            ca_file: ca_file.map(Path::to_owned),
        }
    }

    /// Checks that git is installed and can pin addresses.
    pub(crate) async fn check(&self) -> Result<(), GitFailure> {
        let output = self
            .run(&["version"], b"", 1_024, Duration::from_secs(10))
            .await?;
        let output = String::from_utf8_lossy(&output);
        if parse_version(&output).is_some_and(|version| version >= MIN_GIT_VERSION) {
            return Ok(());
        }
        let (major, minor) = MIN_GIT_VERSION;
        Err(GitFailure::Unusable(format!(
            "git {major}.{minor} or newer is needed on the machine of this service"
        )))
    }

    /// Fetches one commit of a repository, without history. Calls only the given addresses and follows no redirects.
    pub(crate) async fn fetch(
        &self,
        url: &Url,
        addresses: &[IpAddr],
        reference: &str,
        timeout: Duration,
    ) -> Result<(), GitFailure> {
        self.run(&["init", "--quiet", "--bare"], b"", 1_024, timeout)
            .await?;
        let pinned = curlopt_resolve(url, addresses);
        let resolve = format!("http.curloptResolve={pinned}");
        let mut arguments = vec!["-c", &resolve];
        arguments.extend(["fetch", "--quiet", "--depth=1", "--no-tags", "--"]);
        arguments.extend([url.as_str(), reference]);
        self.run(&arguments, b"", 1_024, timeout).await.map(drop)
    }

    /// Runs git with `input` on standard input and returns its output.
    pub(crate) async fn run(
        &self,
        arguments: &[&str],
        input: &[u8],
        max_output: u64,
        timeout: Duration,
    ) -> Result<Vec<u8>, GitFailure> {
        let mut child = self.command(arguments).spawn()?;
        let pid = child
            .id()
            .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let group = ProcessGroup(pid);
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let work = async {
            let write = async move {
                if let Some(mut stdin) = stdin {
                    // Git may end before it has read all input. Its exit status shows whether it failed.
                    let _ = stdin.write_all(input).await;
                }
            };
            let ((), output, stderr_text) = tokio::join!(
                write,
                read_up_to(stdout, max_output),
                read_up_to(stderr, MAX_STDERR_BYTES)
            );
            let (output, is_whole) = output?;
            if !is_whole {
                return Err(GitFailure::OutputTooLarge);
            }
            let status = child.wait().await?;
            let stderr_text = stderr_text.map(|(text, _)| text).unwrap_or_default();
            Ok((status, output, stderr_text))
        };
        let result = tokio::time::timeout(timeout, work).await;
        let (status, output, stderr_text) = result.map_err(|_| GitFailure::TimedOut)??;
        // The process was reaped, so its id may belong to another process.
        group.forget();
        check_status(status, output, &stderr_text)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        const SETTINGS: &[&str] = &[
            "protocol.allow=never",
            "protocol.https.allow=always",
            // The caller's check refuses http:// unless the operator allows the host.
            "protocol.http.allow=always",
            "http.followRedirects=false",
            "http.proxy=",
            "http.lowSpeedLimit=1000",
            "http.lowSpeedTime=15",
            "credential.helper=",
            "core.hooksPath=/dev/null",
            "core.bigFileThreshold=1m",
            // Always one pack file, so that `ulimit -f` limits the size of the repository.
            "fetch.unpackLimit=1",
            "fetch.recurseSubmodules=false",
            "maintenance.auto=false",
            "gc.auto=0",
            "index.threads=1",
            "pack.threads=1",
        ];
        let mut command = Command::new("/bin/sh");
        command.args(["-c", GIT_WITH_ULIMITS, "git"]);
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command
            .args(arguments)
            .current_dir(&self.directory)
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", &self.directory)
            .env("LC_ALL", "C")
            .env("GIT_DIR", &self.directory)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "/bin/false")
            .env("GIT_NO_LAZY_FETCH", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(ca_file) = &self.ca_file {
            command.env("GIT_SSL_CAINFO", ca_file);
        }
        command
    }
}

/// `host:port:address,…`: pins the addresses of the host, independent of later DNS results.
fn curlopt_resolve(url: &Url, addresses: &[IpAddr]) -> String {
    let addresses: Vec<String> = addresses
        .iter()
        .map(|address| match address {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("[{v6}]"),
        })
        .collect();
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or(443);
    format!("{host}:{port}:{}", addresses.join(","))
}

/// Reads up to `max` bytes. Also returns whether that was all.
async fn read_up_to(from: Option<impl AsyncRead + Unpin>, max: u64) -> io::Result<(Vec<u8>, bool)> {
    let (mut text, Some(mut from)) = (Vec::new(), from) else {
        return Ok((Vec::new(), true));
    };
    (&mut from).take(max).read_to_end(&mut text).await?;
    let is_whole = from.read(&mut [0]).await? == 0;
    Ok((text, is_whole))
}

fn check_status(
    status: ExitStatus,
    output: Vec<u8>,
    stderr_text: &[u8],
) -> Result<Vec<u8>, GitFailure> {
    if status.success() {
        return Ok(output);
    }
    let stderr_text = String::from_utf8_lossy(stderr_text);
    // Exit codes of the shell when the program does not exist.
    if matches!(status.code(), Some(126 | 127)) {
        let reason = "git is not installed on the machine of this service";
        return Err(GitFailure::Unusable(reason.to_owned()));
    }
    Err(GitFailure::Failed(format!(
        "{status}: {}",
        stderr_text.trim()
    )))
}

fn parse_version(output: &str) -> Option<(u32, u32)> {
    let mut parts = output.strip_prefix("git version ")?.split('.');
    Some((
        parts.next()?.parse().ok()?,
        parts.next()?.trim().parse().ok()?,
    ))
}

/// Kills a process group when dropped.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // An error means that the group is empty.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn host_names_are_pinned_to_their_checked_addresses() {
        let url = |text: &str| text.parse::<Url>().unwrap();
        let addresses = ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        assert_eq!(
            curlopt_resolve(&url("https://git.example/o/r"), &addresses),
            "git.example:443:192.0.2.1,[2001:db8::1]"
        );
        assert_eq!(
            curlopt_resolve(&url("http://git.example:8080/"), &addresses[..1]),
            "git.example:8080:192.0.2.1"
        );
    }

    #[test]
    fn versions_of_git_are_parsed() {
        assert_eq!(parse_version("git version 2.47.3\n"), Some((2, 47)));
        assert_eq!(
            parse_version("git version 2.39.5 (Apple Git-154)"),
            Some((2, 39))
        );
        assert_eq!(parse_version("git version 3.0\n"), Some((3, 0)));
        assert_eq!(parse_version("nonsense"), None);
    }

    #[tokio::test]
    async fn time_output_and_file_size_are_limited() {
        let directory = tempfile::tempdir().unwrap();
        let git = Git::new(directory.path(), None);
        git.check().await.unwrap();
        let long = Duration::from_secs(60);
        let output = git.run(&["version"], b"", 4, long).await;
        assert!(
            matches!(output, Err(GitFailure::OutputTooLarge)),
            "{output:?}"
        );
        let output = git.run(&["no-such-command"], b"", 1_024, long).await;
        assert!(matches!(output, Err(GitFailure::Failed(_))), "{output:?}");
        git.run(&["init", "--quiet", "--bare"], b"", 0, long)
            .await
            .unwrap();
        // A command that does not end.
        let hung = git.run(
            &["-c", "alias.wait=!sleep 600", "wait"],
            b"",
            1,
            Duration::from_millis(300),
        );
        assert!(matches!(hung.await, Err(GitFailure::TimedOut)));
        // Writes a larger file than allowed.
        let large = "alias.large=!head -c 70000000 /dev/zero > large";
        let output = git.run(&["-c", large, "large"], b"", 1, long).await;
        assert!(matches!(output, Err(GitFailure::Failed(_))), "{output:?}");
        let length = std::fs::metadata(directory.path().join("large"))
            .unwrap()
            .len();
        assert!(length <= 64 << 20, "{length}");
    }

    #[tokio::test]
    async fn redirects_to_another_server_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let git = Git::new(directory.path(), None);
        let bind = || tokio::net::TcpListener::bind("127.0.0.1:0");
        let (server, elsewhere) = (bind().await.unwrap(), bind().await.unwrap());
        let port = |of: &tokio::net::TcpListener| of.local_addr().unwrap().port();
        let to = format!(
            "http://127.0.0.1:{}/r/info/refs?service=git-upload-pack",
            port(&elsewhere)
        );
        let url = format!("http://127.0.0.1:{}/r", port(&server))
            .parse()
            .unwrap();
        let serve = async {
            let (mut stream, _) = server.accept().await.unwrap();
            // The request is short, so it arrives in one read.
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            let response = format!(
                "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(response.as_bytes()).await.unwrap();
        };
        let addresses = ["127.0.0.1".parse().unwrap()];
        let fetch = git.fetch(&url, &addresses, "HEAD", Duration::from_secs(60));
        let (result, called) = tokio::select! {
            (result, ()) = async { tokio::join!(fetch, serve) } => (Some(result), false),
            _ = elsewhere.accept() => (None, true),
        };
        assert!(!called, "git followed the redirect");
        assert!(
            matches!(result, Some(Err(GitFailure::Failed(_)))),
            "{result:?}"
        );
    }

    #[tokio::test]
    async fn only_the_pinned_addresses_are_called() {
        let directory = tempfile::tempdir().unwrap();
        let git = Git::new(directory.path(), None);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // The pinned address has no listener; that of the name has one.
        let url = format!("http://localhost:{port}/o/r.git").parse().unwrap();
        let addresses = ["127.0.0.2".parse().unwrap()];
        let result = git
            .fetch(&url, &addresses, "HEAD", Duration::from_secs(60))
            .await;
        assert!(matches!(result, Err(GitFailure::Failed(_))), "{result:?}");
        let connection = timeout(Duration::from_millis(10), listener.accept()).await;
        assert!(connection.is_err(), "the listener was called");
        for url in [
            "file:///",
            "ssh://localhost/x",
            "git://localhost/x",
            "ext::true",
        ] {
            let url = url.parse().unwrap();
            let result = git.fetch(&url, &[], "HEAD", Duration::from_secs(60)).await;
            assert!(matches!(result, Err(GitFailure::Failed(_))), "{result:?}");
        }
    }
}
