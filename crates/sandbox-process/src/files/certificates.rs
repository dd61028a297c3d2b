//! The certificates that programs of a sandbox trust: those of the system, and that of the sandbox's own authority, with which
//! the service stands for hosts that get secrets.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sandbox_provider::{
    CERTIFICATE_VARIABLES, SYSTEM_CERTIFICATES, java_trust_store, java_trust_store_path,
};
use secrecy::ExposeSecret as _;

use crate::config::ProcessConfig;

const FILE_VARIABLE: &str = CERTIFICATE_VARIABLES[0];

/// Where the certificates of the operator's variables (name and file) are, or of the system without [`FILE_VARIABLE`].
fn sources<'a>(operators: &'a [(&str, String)]) -> Vec<(&'a str, &'a Path)> {
    let mut all: Vec<_> = operators
        .iter()
        .map(|(name, file)| (*name, Path::new(file)))
        .collect();
    if !all.iter().any(|(name, _)| *name == FILE_VARIABLE) {
        let known = SYSTEM_CERTIFICATES.iter().map(Path::new);
        all.extend(
            known
                .filter(|path| path.exists())
                .take(1)
                .map(|it| ("the system", it)),
        );
    }
    all.sort_by_key(|(_, path)| *path);
    all.dedup_by_key(|(_, path)| *path);
    all
}

/// Reads a file, or all files of a directory, as some programs take one.
fn read_all(path: &Path) -> io::Result<Vec<u8>> {
    if !path.is_dir() {
        return fs::read(path);
    }
    let entries: Vec<_> = fs::read_dir(path)?.collect::<io::Result<_>>()?;
    let mut files: Vec<_> = entries.iter().map(fs::DirEntry::path).collect();
    files.sort();
    let mut all = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        all.extend(fs::read(file)?);
        all.push(b'\n');
    }
    Ok(all)
}

/// Writes the file that [`CERTIFICATE_VARIABLES`] name in a sandbox with a proxy, and the one for Java. Returns both. Blocks.
pub(crate) fn write(
    file: &Path,
    config: &ProcessConfig,
    authority: &str,
) -> io::Result<Vec<PathBuf>> {
    let operators = CERTIFICATE_VARIABLES.iter().filter_map(|name| {
        let path = config.extra_env.get(*name)?;
        Some((*name, path.expose_secret().to_owned()))
    });
    let operators: Vec<_> = operators.collect();
    let all = collected(&operators, authority)?;
    let for_java = PathBuf::from(java_trust_store_path(&file.to_string_lossy()));
    replace(&for_java, &java_trust_store(&all))?;
    replace(file, &all)?;
    Ok(vec![file.to_owned(), for_java])
}

fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, content)?;
    // The sandbox has another user id. The directory is the service's own, so nothing else can replace the file.
    fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
    fs::rename(&new, file)
}

/// All certificates of the operator's variables, or those of the system, and the authority's.
fn collected(operators: &[(&str, String)], authority: &str) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    for (name, path) in sources(operators) {
        let text = read_all(path).map_err(|error| {
            let path = path.display();
            io::Error::new(
                error.kind(),
                format!("the certificates of {name}, {path}: {error}"),
            )
        })?;
        all.extend(text);
        if !all.is_empty() && !all.ends_with(b"\n") {
            all.push(b'\n');
        }
    }
    all.extend_from_slice(authority.as_bytes());
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificates_of_all_variables_and_the_authority_are_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["1.pem", "2.pem"].map(|name| dir.path().join(name));
        let text = |operators: &[_], authority| {
            String::from_utf8(collected(operators, authority).unwrap()).unwrap()
        };
        fs::write(&first, "first").unwrap();
        fs::write(&second, "second\n").unwrap();
        let named = |name, path: &Path| (name, path.display().to_string());
        let operators = [
            named("CURL_CA_BUNDLE", &second),
            named(FILE_VARIABLE, &first),
            named("PIP_CERT", &second),
        ];
        for authority in ["one\n", "two\n"] {
            let expected = format!("first\nsecond\n{authority}");
            assert_eq!(text(&operators, authority), expected);
        }
        // One beside the system's.
        let both = text(&[named("NODE_EXTRA_CA_CERTS", &second)], "authority\n");
        assert!(both.contains("second\n") && both.ends_with("authority\n"));
        // A directory, with one that is not read.
        let directory = dir.path().join("all");
        fs::create_dir_all(directory.join("nested")).unwrap();
        for (name, text) in [("b.pem", "b"), ("a.pem", "a")] {
            fs::write(directory.join(name), text).unwrap();
        }
        let of_directory = text(&[named(FILE_VARIABLE, &directory)], "authority\n");
        assert_eq!(of_directory, "a\nb\nauthority\n");
        let missing = [named("PIP_CERT", &dir.path().join("missing.pem"))];
        let error = collected(&missing, "x").unwrap_err().to_string();
        assert!(
            error.contains("PIP_CERT") && error.contains("missing.pem"),
            "{error}"
        );
    }
}
