//! The files of a build, in memory: compressed where that helps, so that a request neither reads nor compresses.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use hyper::body::Bytes;
use sha2::{Digest as _, Sha256};

use crate::error::WebAppError;
use crate::page::IndexPage;
use crate::unpack::{
    COMPRESSED_SUFFIX, MAX_BUILD_BYTES, MAX_FILE_BYTES, MAX_FILES, compress, is_compressible,
};

const INDEX: &str = "index.html";
/// Folders within folders.
const MAX_DEPTH: usize = 8;

/// A build in memory.
#[derive(Debug)]
pub struct WebApp {
    index: IndexPage,
    /// By path, with a leading slash.
    files: BTreeMap<String, WebFile>,
}

/// A file of the build.
#[derive(Debug, Clone)]
pub struct WebFile {
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// The value of `ETag`. It is weak, because it is that of the compressed and of the plain form.
    pub etag: String,
    /// Whether `content` is compressed with gzip.
    pub is_gzip: bool,
    /// The bytes.
    pub content: Bytes,
}

impl WebApp {
    /// Reads the build in a directory. `x.gz` is the compressed form of `x`; missing ones are made now. Follows no links.
    /// Blocks.
    ///
    /// # Errors
    /// A file cannot be read, the build is too large, or its `index.html` is not usable.
    pub fn load(dir: &Path) -> Result<Self, WebAppError> {
        let mut paths = BTreeMap::new();
        list(dir, "", 0, &mut paths)?;
        let mut files = BTreeMap::new();
        let mut total = 0;
        for (name, path) in &paths {
            let plain_name = name.strip_suffix(COMPRESSED_SUFFIX);
            if plain_name.is_none() && paths.contains_key(&format!("{name}{COMPRESSED_SUFFIX}")) {
                continue;
            }
            let content = read_bounded(path)?;
            total += content.len() as u64;
            if total > MAX_BUILD_BYTES {
                let problem = format!("its files have more than {MAX_BUILD_BYTES} bytes");
                return Err(build_error(dir, problem));
            }
            let file = WebFile::new(plain_name.unwrap_or(name), content, plain_name.is_some());
            let file = file.map_err(WebAppError::io("compress", path))?;
            files.insert(plain_name.unwrap_or(name).to_owned(), file);
        }
        let index = files.remove(&format!("/{INDEX}"));
        let index = index.ok_or_else(|| build_error(dir, "it has no index.html".into()))?;
        let html = index
            .plain()
            .map_err(WebAppError::io("read", dir.join(INDEX)))?;
        let html = String::from_utf8(html)
            .map_err(|_| build_error(dir, "its index.html is not UTF-8".into()))?;
        let index = IndexPage::parse(&html).map_err(|problem| build_error(dir, problem))?;
        Ok(Self { index, files })
    }

    /// The file at a path, which starts with a slash. `index.html` is none: see [`WebApp::index`].
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&WebFile> {
        self.files.get(path)
    }

    /// The page of all paths that the router in it shows.
    #[must_use]
    pub fn index(&self) -> &IndexPage {
        &self.index
    }

    /// The number of files and of their bytes in memory.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let bytes = self.files.values().map(|file| file.content.len()).sum();
        (self.files.len(), bytes)
    }
}

impl WebFile {
    fn new(name: &str, content: Vec<u8>, is_compressed: bool) -> io::Result<Self> {
        let etag = etag(&content);
        let content_type = content_type(name);
        let (content, is_gzip) = if is_compressed {
            (content, true)
        } else if is_compressible(name) {
            (compress(&content)?, true)
        } else {
            (content, false)
        };
        Ok(Self {
            content_type,
            etag,
            is_gzip,
            content: content.into(),
        })
    }

    /// The plain bytes. Takes some milliseconds for large files.
    ///
    /// # Errors
    /// The compressed form is damaged, or too large.
    pub fn plain(&self) -> io::Result<Vec<u8>> {
        if !self.is_gzip {
            return Ok(self.content.to_vec());
        }
        let mut plain = Vec::new();
        let mut reader = GzDecoder::new(&self.content[..]).take(MAX_FILE_BYTES + 1);
        reader.read_to_end(&mut plain)?;
        if plain.len() as u64 > MAX_FILE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(plain)
    }

    /// Whether the header `If-None-Match: known` contains the tag of this file.
    #[must_use]
    pub fn matches_etag(&self, known: &str) -> bool {
        let mut tags = known.split(',').map(str::trim);
        tags.any(|tag| tag == "*" || tag == self.etag)
    }
}

fn build_error(dir: &Path, problem: String) -> WebAppError {
    WebAppError::Build {
        dir: dir.to_owned(),
        problem,
    }
}

/// Lists the files below a directory by their paths from it.
fn list(
    dir: &Path,
    prefix: &str,
    depth: usize,
    paths: &mut BTreeMap<String, PathBuf>,
) -> Result<(), WebAppError> {
    let entries = fs::read_dir(dir).map_err(WebAppError::io("read", dir))?;
    for entry in entries {
        let entry = entry.map_err(WebAppError::io("read", dir))?;
        let kind = entry
            .file_type()
            .map_err(WebAppError::io("read", entry.path()))?;
        // Such a name is no path of a URL.
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if kind.is_dir() && depth < MAX_DEPTH {
            list(&entry.path(), &format!("{prefix}/{name}"), depth + 1, paths)?;
        } else if kind.is_file() {
            paths.insert(format!("{prefix}/{name}"), entry.path());
        }
        if paths.len() > MAX_FILES {
            return Err(build_error(
                dir,
                format!("it has more than {MAX_FILES} files"),
            ));
        }
    }
    Ok(())
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, WebAppError> {
    let read = || {
        let mut content = Vec::new();
        let mut reader = File::open(path)?.take(MAX_FILE_BYTES + 1);
        reader.read_to_end(&mut content)?;
        if content.len() as u64 > MAX_FILE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(content)
    };
    read().map_err(WebAppError::io("read", path))
}

fn etag(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    let start = digest.first_chunk::<16>().copied().unwrap_or_default();
    format!("W/\"{:032x}\"", u128::from_be_bytes(start))
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "css" => "text/css; charset=utf-8",
        "gif" => "image/gif",
        "html" => "text/html; charset=utf-8",
        "ico" => "image/x-icon",
        "jpg" | "jpeg" => "image/jpeg",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" | "map" => "application/json",
        "mp3" => "audio/mpeg",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "txt" => "text/plain; charset=utf-8",
        "wasm" => "application/wasm",
        "webmanifest" => "application/manifest+json",
        "webp" => "image/webp",
        "woff2" => "font/woff2",
        "xml" => "text/xml; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("assets")).unwrap();
        for (name, content) in [
            ("index.html", "<head></head>"),
            ("assets/a.js", "a()"),
            ("assets/b~1.css", "b{}"),
            ("icon.png", "png"),
        ] {
            fs::write(dir.path().join(name), content).unwrap();
        }
        dir
    }

    #[test]
    fn a_build_is_read_and_compressed() {
        let dir = build();
        let app = WebApp::load(dir.path()).unwrap();
        let script = app.file("/assets/a.js").unwrap();
        assert!(script.is_gzip);
        assert_eq!(script.plain().unwrap(), b"a()");
        assert_eq!(script.content_type, "text/javascript; charset=utf-8");
        let icon = app.file("/icon.png").unwrap();
        assert_eq!((icon.is_gzip, &icon.content[..]), (false, &b"png"[..]));
        assert!(app.file("/assets/b~1.css").is_some());
        for path in [
            "/index.html",
            "/",
            "/assets",
            "/../x",
            "/assets/../icon.png",
        ] {
            assert!(app.file(path).is_none(), "{path}");
        }
        assert_eq!(app.size().0, 3);
        assert!(script.matches_etag(&format!("\"x\", {}", script.etag)));
        assert!(script.matches_etag("*") && !script.matches_etag(&icon.etag));
    }

    #[test]
    fn a_compressed_form_replaces_the_plain_one() {
        let dir = build();
        let path = dir.path().join("assets/c.js.gz");
        fs::write(path, compress(b"c()").unwrap()).unwrap();
        let app = WebApp::load(dir.path()).unwrap();
        assert_eq!(app.file("/assets/c.js").unwrap().plain().unwrap(), b"c()");
        assert!(app.file("/assets/c.js.gz").is_none());
    }

    #[test]
    fn links_are_not_followed() {
        let dir = build();
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join("host.txt")).unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("etc")).unwrap();
        let app = WebApp::load(dir.path()).unwrap();
        assert!(app.file("/host.txt").is_none() && app.file("/etc/hostname").is_none());
    }

    #[test]
    fn a_directory_without_a_build_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let error = WebApp::load(dir.path()).unwrap_err().to_string();
        assert!(error.contains("index.html") && error.contains(dir.path().to_str().unwrap()));
        assert!(WebApp::load(&dir.path().join("missing")).is_err());
        fs::write(dir.path().join("index.html"), [0xff]).unwrap();
        assert!(WebApp::load(dir.path()).is_err());
    }
}
