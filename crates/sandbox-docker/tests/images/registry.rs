//! A registry (distribution API v2) on loopback. Engines accept plain HTTP there. It can stall, break connections, and
//! require credentials.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bollard::query_parameters::RemoveImageOptionsBuilder;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support;

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";

/// The one tag of every image.
const TAG: &str = "manifests/1";

/// Bytes of the file in the one layer of an image.
pub(crate) const LAYER_BYTES: usize = 8 << 20;

/// How layers are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Completely.
    Whole,
    /// The first half, and the rest after [`FakeRegistry::deliver`] changes this.
    Held,
    /// The first half, then the connection breaks.
    Cut,
    /// The same, but only the first time.
    CutOnce,
}

/// A registry that removes the images pulled from it when it is dropped.
pub(crate) struct FakeRegistry {
    address: SocketAddr,
    shared: Arc<RegistryState>,
}

#[derive(Debug)]
struct RegistryState {
    /// Responses by path.
    answers: Mutex<HashMap<String, RegistryResponse>>,
    delivery: watch::Sender<Delivery>,
    /// The required `Authorization` header.
    authorization: Option<String>,
    /// Requests of a tag. Every pull begins with one.
    pulls: AtomicUsize,
    /// Requests of a layer.
    layers: AtomicUsize,
    /// All received `Authorization` headers.
    received_authorizations: Mutex<Vec<String>>,
    references: Mutex<Vec<String>>,
}

#[derive(Debug, Clone)]
struct RegistryResponse {
    kind: &'static str,
    body: Arc<Vec<u8>>,
}

impl FakeRegistry {
    pub(crate) async fn start(delivery: Delivery) -> Self {
        Self::with_authorization(delivery, None).await
    }

    /// A registry that requires this account.
    pub(crate) async fn private(username: &str, password: &str) -> Self {
        let pair = BASE64_STANDARD.encode(format!("{username}:{password}"));
        Self::with_authorization(Delivery::Whole, Some(format!("Basic {pair}"))).await
    }

    async fn with_authorization(delivery: Delivery, authorization: Option<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(RegistryState {
            answers: Mutex::default(),
            delivery: watch::Sender::new(delivery),
            authorization,
            pulls: AtomicUsize::new(0),
            layers: AtomicUsize::new(0),
            received_authorizations: Mutex::default(),
            references: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                spawn(async move {
                    // An engine that goes away is no failure of the registry.
                    let _ = shared.serve(stream).await;
                });
            }
        });
        Self { address, shared }
    }

    /// The registry's part of image names.
    pub(crate) fn server(&self) -> String {
        self.address.to_string()
    }

    /// The name of an image in this registry, which need not exist.
    pub(crate) fn reference(&self, name: &str) -> String {
        let reference = format!("{}/{name}:1", self.address);
        let mut references = self.shared.references.lock().unwrap();
        references.push(reference.clone());
        reference
    }

    /// Publishes an image that no engine has stored.
    pub(crate) fn publish(&self, name: &str) -> String {
        let layer = layer();
        let layer_digest = digest(&layer);
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {},
            "rootfs": { "type": "layers", "diff_ids": [layer_digest] },
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": { "mediaType": CONFIG, "size": config.len(), "digest": digest(&config) },
            "layers": [{ "mediaType": LAYER, "size": layer.len(), "digest": layer_digest }],
        });
        let manifest = manifest.to_string().into_bytes();
        let mut answers = self.shared.answers.lock().unwrap();
        for (path, kind, body) in [
            (format!("blobs/{layer_digest}"), LAYER, layer),
            (format!("blobs/{}", digest(&config)), CONFIG, config),
            (
                format!("manifests/{}", digest(&manifest)),
                MANIFEST,
                manifest.clone(),
            ),
            (TAG.to_owned(), MANIFEST, manifest),
        ] {
            let body = Arc::new(body);
            answers.insert(
                format!("/v2/{name}/{path}"),
                RegistryResponse { kind, body },
            );
        }
        drop(answers);
        self.reference(name)
    }

    /// Changes how layers are delivered, also those in delivery.
    pub(crate) fn deliver(&self, delivery: Delivery) {
        self.shared.delivery.send_replace(delivery);
    }

    /// The number of pulls.
    pub(crate) fn pulls(&self) -> usize {
        self.shared.pulls.load(Ordering::Relaxed)
    }

    /// All received `Authorization` headers.
    pub(crate) fn received_authorizations(&self) -> Vec<String> {
        self.shared.received_authorizations.lock().unwrap().clone()
    }
}

impl Drop for FakeRegistry {
    fn drop(&mut self) {
        let references = self.shared.references.lock().unwrap().clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(remove(&references));
        });
        let cleaned = thread.join();
        assert!(
            cleaned.is_ok() || std::thread::panicking(),
            "not cleaned up"
        );
    }
}

async fn remove(images: &[String]) {
    let docker = support::engine();
    for image in images {
        let force = RemoveImageOptionsBuilder::new().force(true).build();
        // Most tests have images that were never pulled.
        let _ = docker.remove_image(image, Some(force), None).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "ends with the runtime of the test"
)]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(task));
}

impl RegistryState {
    /// Serves requests one after the other until the client closes the connection.
    async fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        while let Some((line, headers)) = request(&mut reader).await? {
            let mut words = line.split(' ');
            let (Some("GET" | "HEAD"), Some(path)) = (words.next(), words.next()) else {
                // Engines try TLS first.
                return Ok(());
            };
            let is_head = line.starts_with("HEAD");
            self.answer(&mut writer, path, &headers, is_head).await?;
        }
        Ok(())
    }

    async fn answer(
        &self,
        writer: &mut OwnedWriteHalf,
        path: &str,
        headers: &HashMap<String, String>,
        is_head: bool,
    ) -> io::Result<()> {
        let presented = headers.get("authorization");
        self.received_authorizations
            .lock()
            .unwrap()
            .extend(presented.cloned());
        if self.authorization.is_some() && presented != self.authorization.as_ref() {
            let challenge = "WWW-Authenticate: Basic realm=\"test\"\r\n";
            return refuse(writer, "401 Unauthorized", challenge, "UNAUTHORIZED").await;
        }
        if path == "/v2/" {
            return write_whole(writer, "200 OK", "application/json", "", b"{}").await;
        }
        let answer = self.answers.lock().unwrap().get(path).cloned();
        let Some(RegistryResponse { kind, body }) = answer else {
            return refuse(writer, "404 Not Found", "", "MANIFEST_UNKNOWN").await;
        };
        let extra = format!("Docker-Content-Digest: {}\r\n", digest(&body));
        if path.ends_with(TAG) {
            self.pulls.fetch_add(1, Ordering::Relaxed);
        }
        if is_head {
            let head = head("200 OK", kind, &extra, body.len());
            return writer.write_all(head.as_bytes()).await;
        }
        if kind == LAYER {
            return self.deliver_layer(writer, &extra, &body).await;
        }
        write_whole(writer, "200 OK", kind, &extra, &body).await
    }

    async fn deliver_layer(
        &self,
        writer: &mut OwnedWriteHalf,
        extra: &str,
        body: &[u8],
    ) -> io::Result<()> {
        let is_first = self.layers.fetch_add(1, Ordering::Relaxed) == 0;
        let head = head("200 OK", LAYER, extra, body.len());
        writer.write_all(head.as_bytes()).await?;
        let (first, second) = body.split_at(body.len() / 2);
        writer.write_all(first).await?;
        let mut delivery = self.delivery.subscribe();
        let now = delivery.wait_for(|delivery| *delivery != Delivery::Held);
        let now = *now.await.map_err(io::Error::other)?;
        if now == Delivery::Cut || (now == Delivery::CutOnce && is_first) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        writer.write_all(second).await
    }
}

/// The first line, and the headers by lower-case name. `None` at the end of the connection.
async fn request(
    reader: &mut BufReader<OwnedReadHalf>,
) -> io::Result<Option<(String, HashMap<String, String>)>> {
    let mut first = String::new();
    if reader.read_line(&mut first).await? == 0 {
        return Ok(None);
    }
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        let Some((name, value)) = line.trim().split_once(':') else {
            return Ok(Some((first.trim().to_owned(), headers)));
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
}

fn head(status: &str, kind: &str, extra: &str, length: usize) -> String {
    format!(
        "HTTP/1.1 {status}\r\nDocker-Distribution-API-Version: registry/2.0\r\nContent-Type: {kind}\r\n{extra}\
         Content-Length: {length}\r\n\r\n"
    )
}

async fn write_whole(
    writer: &mut OwnedWriteHalf,
    status: &str,
    kind: &str,
    extra: &str,
    body: &[u8],
) -> io::Result<()> {
    let head = head(status, kind, extra, body.len());
    writer.write_all(&[head.as_bytes(), body].concat()).await
}

async fn refuse(
    writer: &mut OwnedWriteHalf,
    status: &str,
    extra: &str,
    code: &str,
) -> io::Result<()> {
    let body = json!({ "errors": [{ "code": code, "message": "no" }] }).to_string();
    write_whole(writer, status, "application/json", extra, body.as_bytes()).await
}

fn digest(bytes: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

/// An archive with one file that differs each time: engines keep layers that they know.
fn layer() -> Vec<u8> {
    let mut content = support::unique_name("").into_bytes();
    content.resize(LAYER_BYTES, b'.');
    let mut layer = Vec::new();
    support::image::entry(&mut layer, "file", '0', 0o644, "", &content);
    layer.resize(layer.len() + 1024, 0);
    layer
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
