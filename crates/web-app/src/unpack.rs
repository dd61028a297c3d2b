//! Unpacks the build from the package's archive.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use tar::Archive;

use crate::error::WebAppError;

/// The folder of the archive that has the build. Everything else is for other uses.
const BUILD_FOLDER: &str = "package/build";

/// Limits of a build, some times what the pinned one has.
pub(crate) const MAX_FILES: usize = 4_000;
pub(crate) const MAX_FILE_BYTES: u64 = 32 << 20;
pub(crate) const MAX_BUILD_BYTES: u64 = 96 << 20;
/// Limit of the whole unpacked archive, of which the build is the smaller part.
const MAX_UNPACKED_BYTES: u64 = 1 << 30;

/// The end of the name of a compressed file.
pub(crate) const COMPRESSED_SUFFIX: &str = ".gz";

/// Unpacks the build into an empty directory, compressible files in their compressed form only. Blocks.
pub(crate) fn unpack(archive: &Path, target: &Path) -> Result<(), WebAppError> {
    let file = File::open(archive).map_err(WebAppError::io("open", archive))?;
    let plain = GzDecoder::new(BufReader::new(file)).take(MAX_UNPACKED_BYTES);
    let mut tar = Archive::new(plain);
    let entries = tar.entries().map_err(|error| damaged(&error))?;
    let (mut names, mut total) = (BTreeSet::new(), 0);
    for entry in entries {
        let mut entry = entry.map_err(|error| damaged(&error))?;
        let path = entry.path().map_err(|error| damaged(&error))?.into_owned();
        let Ok(name) = path.strip_prefix(BUILD_FOLDER) else {
            continue;
        };
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            continue;
        }
        if !kind.is_file() || !is_plain(name) {
            return Err(refused(&path, "is not a plain file"));
        }
        total += entry.size();
        if entry.size() > MAX_FILE_BYTES || total > MAX_BUILD_BYTES || names.len() >= MAX_FILES {
            return Err(refused(&path, "exceeds the limits of a build"));
        }
        if !names.insert(name.to_owned()) {
            return Err(refused(&path, "occurs twice"));
        }
        let mut content = Vec::new();
        entry
            .read_to_end(&mut content)
            .map_err(|error| damaged(&error))?;
        write(target, name, content)?;
    }
    if names.is_empty() {
        let problem = format!("it has no files in {BUILD_FOLDER}");
        return Err(WebAppError::Archive(problem));
    }
    Ok(())
}

/// Whether a path has only names, so that it stays below its directory.
fn is_plain(path: &Path) -> bool {
    let mut components = path.components().peekable();
    components.peek().is_some() && components.all(|it| matches!(it, Component::Normal(_)))
}

fn write(target: &Path, name: &Path, mut content: Vec<u8>) -> Result<(), WebAppError> {
    let mut path = target.join(name);
    if name.to_str().is_some_and(is_compressible) {
        content = compress(&content).map_err(WebAppError::io("compress", &path))?;
        let mut compressed = path.into_os_string();
        compressed.push(COMPRESSED_SUFFIX);
        path = PathBuf::from(compressed);
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(WebAppError::io("create", parent))?;
    }
    fs::write(&path, content).map_err(WebAppError::io("write", &path))
}

/// Whether compression makes a file of this name smaller.
pub(crate) fn is_compressible(name: &str) -> bool {
    let extension = name.rsplit('.').next().unwrap_or_default();
    [
        "css",
        "html",
        "js",
        "json",
        "map",
        "mjs",
        "svg",
        "txt",
        "wasm",
        "webmanifest",
        "xml",
    ]
    .contains(&extension)
}

pub(crate) fn compress(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    encoder.finish()
}

fn damaged(error: &io::Error) -> WebAppError {
    WebAppError::Archive(format!("it is damaged: {error}"))
}

fn refused(path: &Path, problem: &str) -> WebAppError {
    WebAppError::Archive(format!("{} {problem}", path.display()))
}

#[cfg(test)]
pub(crate) mod tests {
    use tar::{Builder, EntryType, Header};

    use super::*;

    /// An archive with these files; a name that ends in `@` is a link to `/etc/passwd`.
    pub(crate) fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (name, content) in files {
            let mut header = Header::new_gnu();
            // `set_path` refuses what an attacker writes.
            let field = &mut header.as_old_mut().name;
            field[..name.len()].copy_from_slice(name.as_bytes());
            header.set_mode(0o644);
            header.set_size(content.len() as u64);
            if name.ends_with('@') {
                header.set_entry_type(EntryType::Symlink);
                header.set_size(0);
                header.set_link_name("/etc/passwd").unwrap();
            }
            header.set_cksum();
            let content = if name.ends_with('@') { "" } else { content };
            tar.append(&header, content.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap()
    }

    fn unpacked(files: &[(&str, &str)]) -> (tempfile::TempDir, Result<(), WebAppError>) {
        let dir = tempfile::tempdir().unwrap();
        let (file, target) = (dir.path().join("x.tgz"), dir.path().join("build"));
        fs::write(&file, archive(files)).unwrap();
        fs::create_dir(&target).unwrap();
        let result = unpack(&file, &target);
        (dir, result)
    }

    #[test]
    fn only_the_build_is_unpacked() {
        let (dir, result) = unpacked(&[
            ("package/package.json", "{}"),
            ("package/build/index.html", "<head></head>"),
            ("package/build/assets/a.js", "a()"),
            ("package/build/icon.png", "png"),
            ("package/buildings/x.js", "x"),
            ("other@", ""),
        ]);
        result.unwrap();
        let build = dir.path().join("build");
        let names: BTreeSet<_> = fs::read_dir(&build)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(
            names.into_iter().collect::<Vec<_>>(),
            ["assets", "icon.png", "index.html.gz"]
        );
        assert!(build.join("assets/a.js.gz").is_file());
        assert!(!dir.path().join("package.json").exists());
    }

    #[test]
    fn hostile_archives_are_refused() {
        for files in [
            &[("package/build/../../../x", "x")][..],
            &[("package/build/a/../x", "x")],
            &[("package/build/link@", "")],
            &[("package/build/a", "1"), ("package/build/a", "2")],
            &[("package/other", "x")],
            &[],
        ] {
            let (dir, result) = unpacked(files);
            assert!(result.is_err(), "{files:?}");
            assert!(!dir.path().join("x").exists());
        }
    }

    #[test]
    fn too_many_files_and_damaged_archives_are_refused() {
        let names: Vec<_> = (0..=MAX_FILES)
            .map(|number| format!("package/build/{number}"))
            .collect();
        let files: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
        let (_dir, result) = unpacked(&files);
        assert!(result.unwrap_err().to_string().contains("limits"));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.tgz");
        let whole = archive(&[("package/build/index.html", "<head></head>")]);
        for content in [&whole[..whole.len() / 2], b"no archive", b""] {
            fs::write(&file, content).unwrap();
            assert!(unpack(&file, dir.path()).is_err());
        }
    }
}
