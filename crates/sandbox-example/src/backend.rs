//! A small sandbox backend: each sandbox is a directory and a child process.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::id::{SandboxId, SpecId};
use domain::sandbox::{
    AGENT_SERVER, BackendCapabilities, BackendFact, BackendState, ExposedUrl, LogMask, LogStream,
    LogTail, PrepareProgress, SandboxBackend, SandboxEndpoints, SandboxError, SandboxLaunch,
    SandboxLifecycle, SandboxReader, is_below, normalize_path,
};
use endpoint_guard::{EndpointGuard, GuardError, ListeningSocket, look_up};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use secrecy::{ExposeSecret, SecretString};
use tokio::fs;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, broadcast};

/// The value of `sandbox.backend`.
pub(crate) const NAME: &str = "example";

/// Interval of checks whether processes run and whether logs have new lines.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Exits that a slow reader of `watch` may miss before it loses some.
const MAX_UNREAD_EXITS: usize = 1_000;

/// The sandboxes of one installation. A clone is the same backend.
#[derive(Clone)]
pub struct ExampleSandboxes(Arc<ExampleInner>);

struct ExampleInner {
    /// Holds a directory for each sandbox.
    root: PathBuf,
    /// The agent server: a program and its arguments.
    command: Vec<String>,
    running: Mutex<BTreeMap<SandboxId, RunningSandbox>>,
    exits: broadcast::Sender<BackendFact>,
}

struct RunningSandbox {
    child: Child,
    endpoints: SandboxEndpoints,
}

/// What is on disk of one sandbox.
struct SandboxFiles {
    folder: PathBuf,
    workspace: PathBuf,
    log: PathBuf,
    pid: PathBuf,
    /// Exists after an exit that was not requested, and holds its cause.
    exit: PathBuf,
}

impl ExampleSandboxes {
    /// Makes the directory if needed. `command` names at least a program.
    pub async fn new(root: &Path, command: Vec<String>) -> io::Result<Self> {
        fs::create_dir_all(root).await?;
        Ok(Self(Arc::new(ExampleInner {
            root: fs::canonicalize(root).await?,
            command,
            running: Mutex::default(),
            exits: broadcast::Sender::new(MAX_UNREAD_EXITS),
        })))
    }
}

impl ExampleInner {
    fn files(&self, id: &SandboxId) -> SandboxFiles {
        let folder = self.root.join(id.as_str());
        SandboxFiles {
            workspace: folder.join("workspace"),
            log: folder.join("agent-server.log"),
            pid: folder.join("pid"),
            exit: folder.join("exit"),
            folder,
        }
    }

    /// The state of one sandbox. An exit that is seen here for the first time is recorded and reported.
    async fn state(
        &self,
        running: &mut BTreeMap<SandboxId, RunningSandbox>,
        id: &SandboxId,
    ) -> io::Result<Option<BackendState>> {
        let files = self.files(id);
        if let Some(sandbox) = running.get_mut(id) {
            let Some(status) = sandbox.child.try_wait()? else {
                return Ok(Some(BackendState::Running(sandbox.endpoints.clone())));
            };
            running.remove(id);
            let detail = format!("the agent server ended: {status}");
            fs::write(&files.exit, &detail).await?;
            let state = BackendState::Exited { detail };
            let id = id.clone();
            // An error means that nothing watches.
            let _ = self.exits.send(BackendFact { id, state });
        }
        if !fs::try_exists(&files.folder).await? {
            return Ok(None);
        }
        let state = match fs::read_to_string(&files.exit).await {
            Ok(detail) => BackendState::Exited { detail },
            Err(_) => BackendState::Stopped,
        };
        Ok(Some(state))
    }

    /// Starts the agent server in the sandbox's workspace.
    async fn spawn(&self, launch: &SandboxLaunch) -> io::Result<RunningSandbox> {
        let files = self.files(&launch.id);
        fs::create_dir_all(&files.workspace).await?;
        forget_exit(&files).await?;
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&files.log)?;
        // The system gives each listener a free port. It is free again when the listener is dropped.
        let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &files.folder)
            .env("OH_SECRET_KEY", launch.secret_key.expose_secret())
            .current_dir(&files.workspace)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        if launch.dormant {
            command.env("OH_DEFERRED_INIT", "1");
        } else {
            command
                .env("OH_SESSION_API_KEYS_0", launch.session_key.expose_secret())
                .env("OH_WEBHOOKS_0_BASE_URL", launch.webhook_url.as_str());
        }
        let child = command.spawn()?;
        let pid = child.id().unwrap_or_default();
        fs::write(&files.pid, pid.to_string()).await?;
        let endpoints = endpoints(&files.workspace, port)?;
        Ok(RunningSandbox { child, endpoints })
    }
}

async fn forget_exit(files: &SandboxFiles) -> io::Result<()> {
    match fs::remove_file(&files.exit).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn endpoints(workspace: &Path, port: u16) -> io::Result<SandboxEndpoints> {
    let url = format!("http://127.0.0.1:{port}/").parse();
    let url: url::Url = url.map_err(io::Error::other)?;
    Ok(SandboxEndpoints {
        agent_url: url.clone(),
        exposed_urls: vec![ExposedUrl {
            name: AGENT_SERVER.to_owned(),
            url,
            port,
        }],
        workspace: workspace.display().to_string(),
        has_proxy: false,
    })
}

/// The one place that converts errors of the technology.
fn other(error: io::Error) -> SandboxError {
    SandboxError::Other(Box::new(error))
}

#[async_trait]
impl SandboxBackend for ExampleSandboxes {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> BackendCapabilities {
        BackendCapabilities {
            pause: true,
            isolated: false,
            replaces_session_key: false,
        }
    }

    async fn prepare(&self, _: &SpecId, _: &PrepareProgress) -> Result<(), SandboxError> {
        self.check().await
    }

    async fn check(&self) -> Result<(), SandboxError> {
        let checked = fs::create_dir_all(&self.0.root).await;
        checked.map_err(|error| SandboxError::Unavailable {
            detail: "the directory of the sandboxes cannot be made".to_owned(),
            source: Some(Box::new(error)),
        })
    }
}

#[async_trait]
impl SandboxLifecycle for ExampleSandboxes {
    async fn start(&self, launch: &SandboxLaunch) -> Result<SandboxEndpoints, SandboxError> {
        let mut running = self.0.running.lock().await;
        let state = self.0.state(&mut running, &launch.id).await;
        if let Some(BackendState::Running(endpoints)) = state.map_err(other)? {
            return Ok(endpoints);
        }
        let spawned = self.0.spawn(launch).await;
        let sandbox = spawned.map_err(|error| SandboxError::StartFailed {
            detail: "the agent server cannot be started".to_owned(),
            source: Some(Box::new(error)),
        })?;
        let endpoints = sandbox.endpoints.clone();
        running.insert(launch.id.clone(), sandbox);
        Ok(endpoints)
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Option<BackendState>, SandboxError> {
        let mut running = self.0.running.lock().await;
        self.0.state(&mut running, id).await.map_err(other)
    }

    async fn list(&self) -> Result<Vec<BackendFact>, SandboxError> {
        let mut facts = Vec::new();
        let mut folders = fs::read_dir(&self.0.root).await.map_err(other)?;
        while let Some(folder) = folders.next_entry().await.map_err(other)? {
            let name = folder.file_name();
            let Ok(id) = SandboxId::parse(name.to_string_lossy()) else {
                continue;
            };
            if let Some(state) = self.inspect(&id).await? {
                facts.push(BackendFact { id, state });
            }
        }
        Ok(facts)
    }

    async fn stop(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let mut running = self.0.running.lock().await;
        let state = self.0.state(&mut running, id).await.map_err(other)?;
        if state.is_none() {
            return Err(SandboxError::NotFound);
        }
        if let Some(mut sandbox) = running.remove(id) {
            // Kills it and waits for its end.
            sandbox.child.kill().await.map_err(other)?;
        }
        forget_exit(&self.0.files(id)).await.map_err(other)
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), SandboxError> {
        match self.stop(id).await {
            Ok(()) => {}
            Err(SandboxError::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        }
        let folder = self.0.files(id).folder;
        fs::remove_dir_all(folder).await.map_err(other)
    }

    fn watch(&self) -> BoxStream<'static, BackendFact> {
        let exits = self.0.exits.subscribe();
        let next = |(backend, mut exits): (Self, broadcast::Receiver<_>)| async move {
            loop {
                if let Ok(fact) = exits.try_recv() {
                    return Some((fact, (backend, exits)));
                }
                // It reports the exits that it finds. A failure is repeated at the next turn.
                let _ = backend.list().await;
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        stream::unfold((self.clone(), exits), next).boxed()
    }
}

#[async_trait]
impl SandboxReader for ExampleSandboxes {
    async fn logs(
        &self,
        id: &SandboxId,
        keys: &[SecretString],
        tail: LogTail,
    ) -> Result<LogStream, SandboxError> {
        self.inspect(id).await?.ok_or(SandboxError::NotFound)?;
        let file = fs::File::open(self.0.files(id).log).await;
        let mut reader = ExampleLogReader {
            backend: self.clone(),
            id: id.clone(),
            file: file.map_err(other)?,
            mask: LogMask::new(keys),
            has_ended: !tail.follow,
        };
        let text = reader.read().await?;
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        let first = lines.len().saturating_sub(tail.lines as usize);
        let last = reader.mask.push(&lines[first..].concat());
        let last = stream::iter((!last.is_empty()).then_some(Ok(last)));
        Ok(last
            .chain(stream::unfold(reader, ExampleLogReader::next))
            .boxed())
    }

    async fn resolve(&self, id: &SandboxId, path: &str) -> Result<String, SandboxError> {
        let workspace = self.0.files(id).workspace.display().to_string();
        let full = match path.strip_prefix('/') {
            Some(_) => path.to_owned(),
            None => format!("{workspace}/{path}"),
        };
        let is_inside = |path: &String| is_below(path, &workspace);
        let path = normalize_path(&full).filter(is_inside);
        let path = path.ok_or(SandboxError::NotFound)?;
        // A link may lead out of the workspace. Only the part that exists can have links.
        let mut existing = PathBuf::from(&path);
        while !fs::try_exists(&existing).await.map_err(other)? {
            existing.pop();
        }
        let real = fs::canonicalize(&existing).await.map_err(other)?;
        let rest = Path::new(&path).strip_prefix(&existing);
        let rest = rest.map_err(|_| SandboxError::NotFound)?;
        let real = if rest.as_os_str().is_empty() {
            real
        } else {
            real.join(rest)
        };
        let real = Some(real.display().to_string()).filter(is_inside);
        real.ok_or(SandboxError::NotFound)
    }
}

#[async_trait]
impl EndpointGuard for ExampleSandboxes {
    async fn prove(
        &self,
        sandbox: &str,
        address: SocketAddr,
    ) -> Result<Option<ListeningSocket>, GuardError> {
        let port = address.port();
        let running = self.0.running.lock().await;
        let pid = SandboxId::parse(sandbox)
            .ok()
            .and_then(|id| running.get(&id)?.child.id());
        let pid = pid.ok_or(GuardError::HeldByAnother(port))?;
        let unknown = |source| GuardError::Unknown { port, source };
        let socket = look_up(address).await.map_err(unknown)?;
        let socket = socket.ok_or(GuardError::NotListening(port))?;
        // The process shows its open files as links, a socket by its inode.
        let name = format!("socket:[{}]", socket.inode);
        let mut files = fs::read_dir(format!("/proc/{pid}/fd"))
            .await
            .map_err(unknown)?;
        while let Some(file) = files.next_entry().await.map_err(unknown)? {
            if fs::read_link(file.path())
                .await
                .is_ok_and(|link| link.as_os_str() == name.as_str())
            {
                return Ok(Some(socket));
            }
        }
        Err(GuardError::HeldByAnother(port))
    }
}

/// The state of one reader of a log.
struct ExampleLogReader {
    backend: ExampleSandboxes,
    id: SandboxId,
    file: fs::File,
    mask: LogMask,
    /// Whether nothing more is to come than what the file has.
    has_ended: bool,
}

impl ExampleLogReader {
    /// Everything that was written since the last read.
    async fn read(&mut self) -> Result<Vec<u8>, SandboxError> {
        let mut text = Vec::new();
        let read = self.file.read_to_end(&mut text).await;
        read.map_err(other)?;
        Ok(text)
    }

    async fn next(mut self) -> Option<(Result<Vec<u8>, SandboxError>, Self)> {
        while !self.has_ended {
            // The state comes first, so that the last lines are not missed.
            let state = self.backend.inspect(&self.id).await;
            self.has_ended = !matches!(state, Ok(Some(BackendState::Running(_))));
            let lines = match self.read().await {
                Ok(text) => self.mask.push(&text),
                Err(error) => return Some((Err(error), self)),
            };
            if !lines.is_empty() {
                return Some((Ok(lines), self));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let last = self.mask.finish();
        (!last.is_empty()).then_some((Ok(last), self))
    }
}
