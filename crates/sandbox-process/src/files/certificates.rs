//! The certificates that programs of a sandbox trust: those of the system, and that of the sandbox's own authority, with which
//! the service stands for hosts that get secrets.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The variable with the file of all trusted certificates, of OpenSSL and what is built on it.
pub(crate) const FILE_VARIABLE: &str = "SSL_CERT_FILE";
/// Those of programs that do not read it.
pub(crate) const MORE_VARIABLES: [&str; 8] = [
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "CURL_CA_BUNDLE",
    "DENO_CERT",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
];

/// Where distributions keep what the system trusts: Debian and Alpine, Fedora, SUSE, OpenSSL's own.
const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/var/lib/ca-certificates/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Writes the file, with the operator's own certificates or those of the system. Blocks.
pub(crate) fn write(file: &Path, operators: Option<&str>, authority: &str) -> io::Result<()> {
    let base = operators.map(PathBuf::from).or_else(|| {
        let mut known = SYSTEM_FILES.iter().map(PathBuf::from);
        known.find(|path| path.exists())
    });
    let mut all = base.map(fs::read).transpose()?.unwrap_or_default();
    if !all.is_empty() && !all.ends_with(b"\n") {
        all.push(b'\n');
    }
    all.extend_from_slice(authority.as_bytes());
    let new = file.with_extension("new");
    fs::write(&new, all)?;
    // The sandbox has another user id. The directory is the service's own, so nothing else can replace the file.
    fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
    fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_operators_certificates_and_the_authority() {
        let dir = tempfile::tempdir().unwrap();
        let (file, own) = (dir.path().join("all.pem"), dir.path().join("own.pem"));
        fs::write(&own, "own").unwrap();
        for authority in ["first\n", "second\n"] {
            write(&file, own.to_str(), authority).unwrap();
            let text = fs::read_to_string(&file).unwrap();
            assert_eq!(text, format!("own\n{authority}"));
        }
        let missing = dir.path().join("missing.pem");
        assert!(write(&file, missing.to_str(), "x").is_err());
        write(&file, None, "authority\n").unwrap();
        assert!(fs::read_to_string(&file).unwrap().ends_with("authority\n"));
    }
}
