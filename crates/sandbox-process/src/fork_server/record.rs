//! What the fork server of an installation has found out. Its rehearsal, which takes 3 s of processor time, and its self-test
//! have the same results for the same installation, scripts, environment and kernel.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sandbox_provider::{SandboxVariables, short_digest};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};

const FILE: &str = "fork-server.json";
const MAX_BYTES: u64 = 1 << 20;

/// Content of `<installation>/fork-server.json`, which exists after a self-test that passed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ForkServerRecord {
    /// Hash of what the results depend on.
    depends_on: String,
    /// The modules that the rehearsal loaded, in their order.
    pub(super) modules: Vec<String>,
}

/// Where the record of an installation is, and what its results depend on.
#[derive(Debug, Clone)]
pub(super) struct RecordKey {
    file: PathBuf,
    depends_on: String,
}

impl RecordKey {
    /// `python` is the interpreter of the installation. `directory` is that of the fork server; it is part of the values of
    /// the environment, and the results do not depend on it. Blocks.
    pub(super) fn new(
        python: &Path,
        directory: &Path,
        environment: &SandboxVariables,
        scripts: &[&str],
    ) -> io::Result<Self> {
        let installation = python.parent().and_then(Path::parent);
        let installation = installation.ok_or(io::ErrorKind::NotFound)?;
        let interpreter = fs::metadata(python)?;
        let modified = interpreter.modified()?.duration_since(UNIX_EPOCH);
        let kernel = rustix::system::uname();
        let mut parts = vec![
            format!("{:?} {modified:?}", interpreter.len()),
            format!("{:?} {:?}", kernel.release(), kernel.version()),
        ];
        let directory = directory.to_string_lossy();
        parts.extend(environment.iter().map(|(name, value)| {
            let value = value.expose_secret().replace(&*directory, "");
            format!("{name}={value}")
        }));
        parts.extend(scripts.iter().map(|&script| script.to_owned()));
        let parts: Vec<_> = parts.iter().map(String::as_bytes).collect();
        Ok(Self {
            file: installation.join(FILE),
            depends_on: short_digest(&parts),
        })
    }

    /// The record, if one exists and its results still hold. Blocks.
    pub(super) fn load(&self) -> Option<ForkServerRecord> {
        let mut text = String::new();
        let file = File::open(&self.file).ok()?;
        file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
        let record: ForkServerRecord = serde_json::from_str(&text).ok()?;
        (record.depends_on == self.depends_on).then_some(record)
    }

    /// Replaces the record. Services that share the installation may do it at the same time. Blocks.
    pub(super) fn store(&self, modules: Vec<String>) -> io::Result<()> {
        let record = ForkServerRecord {
            depends_on: self.depends_on.clone(),
            modules,
        };
        let unfinished = self
            .file
            .with_extension(format!("{}.tmp", std::process::id()));
        fs::write(&unfinished, serde_json::to_vec(&record)?)?;
        fs::rename(&unfinished, &self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> SandboxVariables {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned().into()))
            .collect()
    }

    #[test]
    fn a_record_holds_until_something_it_depends_on_changes() {
        let installation = tempfile::tempdir().unwrap();
        let python = installation.path().join("bin/python");
        fs::create_dir(installation.path().join("bin")).unwrap();
        fs::write(&python, "an interpreter").unwrap();
        let key = |directory: &str, home: &str, script: &str| {
            let environment = variables(&[("HOME", home)]);
            RecordKey::new(&python, Path::new(directory), &environment, &[script]).unwrap()
        };
        let first = key("/run/a", "/run/a/home", "script");
        assert_eq!(first.load(), None, "there is no record");
        first
            .store(vec!["one".to_owned(), "two".to_owned()])
            .unwrap();
        let modules = |key: RecordKey| key.load().map(|record| record.modules);
        let expected = Some(vec!["one".to_owned(), "two".to_owned()]);
        assert_eq!(modules(first), expected);
        assert_eq!(modules(key("/run/b", "/run/b/home", "script")), expected);
        assert_eq!(modules(key("/run/a", "/elsewhere", "script")), None);
        assert_eq!(modules(key("/run/a", "/run/a/home", "another")), None);
        fs::write(&python, "another interpreter").unwrap();
        assert_eq!(modules(key("/run/a", "/run/a/home", "script")), None);
        fs::write(installation.path().join(FILE), "{").unwrap();
        assert_eq!(modules(key("/run/a", "/run/a/home", "script")), None);
    }
}
