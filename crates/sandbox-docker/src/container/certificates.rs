//! The certificates that programs of a container with a proxy trust: those of its image, and that of the sandbox's authority, with
//! which the service stands for hosts that get secrets.

use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use bollard::query_parameters::{
    DownloadFromContainerOptionsBuilder, UploadToContainerOptionsBuilder,
};
use domain::sandbox::{SandboxError, SandboxLaunch};
use futures::TryStreamExt as _;
use sandbox_provider::{
    CERTIFICATE_VARIABLES, SYSTEM_CERTIFICATES, authority_of, java_trust_store,
    java_trust_store_path,
};
use secrecy::ExposeSecret;

use crate::backend::DockerInner;
use crate::config::DockerSpec;

/// In the volume, which is writable in all containers and exists before their first start.
const NAME: &str = ".certificates.pem";
/// The largest known bundle has 300 KB.
const MAX_BUNDLE_BYTES: usize = 8 * 1024 * 1024;
/// Links from the known name of a bundle to its file.
const MAX_LINKS: usize = 4;

/// The file in a container with this volume.
pub(crate) fn path(volume: &str) -> String {
    format!("{volume}/{NAME}")
}

/// What an archive of one path has.
#[derive(Debug, PartialEq, Eq)]
enum FileInArchive {
    Content(Vec<u8>),
    Link(PathBuf),
}

impl DockerInner {
    /// Writes the files before a start of a container with a proxy: an agent may have deleted it. Returns whether the container still
    /// exists.
    pub(crate) async fn write_certificates(
        &self,
        launch: &SandboxLaunch,
        container: &str,
    ) -> Result<bool, SandboxError> {
        let Ok(spec) = self.spec(&launch.spec) else {
            // Those of an earlier start are still there.
            return Ok(true);
        };
        let mut all = self.trusted_by(spec, container).await;
        let authority = authority_of(self.config.egress.as_ref(), &launch.id)?;
        all.extend_from_slice(authority.as_bytes());
        let archive = archive(&all).map_err(SandboxError::other)?;
        let options = UploadToContainerOptionsBuilder::new()
            .path(&spec.volume)
            .build();
        let uploaded = self.engine.call("writing certificates", |docker| {
            docker.upload_to_container(container, Some(options), bollard::body_full(archive.into()))
        });
        match uploaded.await {
            Ok(()) => Ok(true),
            Err(error) if error.is_changed_elsewhere() => Ok(false),
            Err(error) => Err(error.start_failed()),
        }
    }

    /// The certificates that the operator's variables name. Unless one of them replaces the system's, also those of the image's system,
    /// or of this one where the image has none.
    async fn trusted_by(&self, spec: &DockerSpec, container: &str) -> Vec<u8> {
        let mut all = Vec::new();
        for path in operators(spec) {
            match self.read_file(container, &path).await {
                Some(content) => append(&mut all, &content),
                None => {
                    tracing::warn!(path, spec = %spec.id, "the image of a template has no certificates at this path, which a variable of the template names");
                }
            }
        }
        let replaces_system = CERTIFICATE_VARIABLES[0];
        if spec.env.contains_key(replaces_system) || spec.secret_env.contains_key(replaces_system) {
            return all;
        }
        for path in SYSTEM_CERTIFICATES {
            if let Some(content) = self.read_file(container, path).await {
                append(&mut all, &content);
                return all;
            }
        }
        for path in SYSTEM_CERTIFICATES {
            if let Ok(content) = tokio::fs::read(path).await {
                append(&mut all, &content);
                break;
            }
        }
        all
    }

    /// A file of a container. `None`: there is none, or the engine does not say.
    async fn read_file(&self, container: &str, path: &str) -> Option<Vec<u8>> {
        let mut path = PathBuf::from(path);
        for _ in 0..MAX_LINKS {
            let options = DownloadFromContainerOptionsBuilder::new()
                .path(path.to_str()?)
                .build();
            let read = self.engine.call("reading certificates", |docker| {
                let chunks = docker.download_from_container(container, Some(options));
                chunks.try_fold(Vec::new(), async |mut all, chunk| {
                    let room = MAX_BUNDLE_BYTES.saturating_sub(all.len());
                    all.extend(chunk.iter().take(room));
                    Ok(all)
                })
            });
            match only_file(&read.await.ok()?)? {
                FileInArchive::Content(content) => return Some(content),
                FileInArchive::Link(target) => path = joined(path.parent()?, &target),
            }
        }
        None
    }
}

/// The files that the operator's variables name.
fn operators(spec: &DockerSpec) -> Vec<String> {
    let named = CERTIFICATE_VARIABLES.iter().filter_map(|name| {
        let secret = spec.secret_env.get(*name).map(ExposeSecret::expose_secret);
        secret.or_else(|| spec.env.get(*name).map(String::as_str))
    });
    let mut all: Vec<_> = named.map(str::to_owned).collect();
    all.sort();
    all.dedup();
    all
}

fn append(all: &mut Vec<u8>, content: &[u8]) {
    all.extend_from_slice(content);
    if !content.is_empty() && !content.ends_with(b"\n") {
        all.push(b'\n');
    }
}

/// The first entry of an archive. `None` for a directory, and for an archive that is not valid.
fn only_file(archive: &[u8]) -> Option<FileInArchive> {
    let mut archive = tar::Archive::new(archive);
    let mut entry = archive.entries().ok()?.next()?.ok()?;
    if let Some(target) = entry.link_name().ok()? {
        return Some(FileInArchive::Link(target.into_owned()));
    }
    if !entry.header().entry_type().is_file() {
        return None;
    }
    let mut content = Vec::new();
    entry.read_to_end(&mut content).ok()?;
    Some(FileInArchive::Content(content))
}

/// The target of a link in this directory.
fn joined(directory: &Path, target: &Path) -> PathBuf {
    let mut path = PathBuf::new();
    for part in directory.join(target).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            other => path.push(other),
        }
    }
    path
}

/// An archive with the file and the one for Java, which all users of the container may read.
fn archive(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in [
        (NAME.to_owned(), content),
        (java_trust_store_path(NAME), &java_trust_store(content)),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content)?;
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use domain::id::SpecId;

    use super::*;

    #[test]
    fn an_archive_gives_its_file_or_where_its_link_points() {
        assert_eq!(
            only_file(&archive(b"text").unwrap()),
            Some(FileInArchive::Content(b"text".to_vec()))
        );
        let mut link = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        link.append_link(&mut header, "cert.pem", "../pki/all.pem")
            .unwrap();
        let target = PathBuf::from("../pki/all.pem");
        let expected = Some(FileInArchive::Link(target.clone()));
        assert_eq!(only_file(&link.into_inner().unwrap()), expected);
        let path = joined(Path::new("/etc/ssl"), &target);
        assert_eq!(path, Path::new("/etc/pki/all.pem"));
        let absolute = joined(Path::new("/etc/ssl"), Path::new("/a/b"));
        assert_eq!(absolute, Path::new("/a/b"));
        for broken in [&b""[..], b"x", &[1; 600]] {
            assert_eq!(only_file(broken), None);
        }
    }

    #[test]
    fn files_of_the_operators_variables_are_read_once() {
        let mut spec = DockerSpec::new(SpecId::parse("x").unwrap(), "x:1");
        for (name, path) in [
            ("PIP_CERT", "/b.pem"),
            ("CURL_CA_BUNDLE", "/a.pem"),
            ("SSL_CERT_FILE", "/b.pem"),
            ("OTHER", "/c.pem"),
        ] {
            spec.env.insert(name.to_owned(), path.to_owned());
        }
        let secret = "/d.pem".into();
        spec.secret_env.insert("DENO_CERT".to_owned(), secret);
        assert_eq!(operators(&spec), ["/a.pem", "/b.pem", "/d.pem"]);
        let mut all = Vec::new();
        for text in [&b"1"[..], b"", b"2\n", b"3"] {
            append(&mut all, text);
        }
        assert_eq!(all, b"1\n2\n3\n");
    }
}
