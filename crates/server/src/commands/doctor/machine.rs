//! Checks of `doctor`: the data directory and the files with keys.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};

use super::DoctorReport;
use crate::config::Config;
use crate::data_dir::DataDir;

/// Less free space is a problem or a warning, in bytes.
const MIN_FREE_BYTES: u64 = 200 << 20;
const RECOMMENDED_FREE_BYTES: u64 = 2 << 30;
/// The same for free inodes.
const MIN_FREE_INODES: u64 = 1_000;
const RECOMMENDED_FREE_INODES: u64 = 50_000;

/// The data directory, if it exists.
pub(super) fn data_dir(config: &Config, report: &mut DoctorReport) -> Option<DataDir> {
    let what = "data directory";
    let path = &config.data_dir;
    let found = DataDir::existing(path);
    let place = match &found {
        Some(_) => path.clone(),
        None => nearest(path),
    };
    let advice = "set WORKSPACE_DATA_DIR to a directory that this user can write";
    if let Err(error) = access(&place, Access::WRITE_OK | Access::EXEC_OK) {
        let text = format!("{} is not writable ({error}): {advice}", place.display());
        report.problem(what, text);
    } else if found.is_none() && path.exists() {
        let text = format!("{} is not a directory: {advice}", path.display());
        report.problem(what, text);
    } else if found.is_none() {
        let text = format!(
            "{} does not exist yet; the first start creates it",
            path.display()
        );
        report.ok(what, text);
    } else {
        report.ok(what, path.display().to_string());
    }
    if let Some(dir) = &found {
        let use_ = if dir.is_in_use() {
            "a running service uses it"
        } else {
            "no running service uses it"
        };
        report.ok("use", use_);
    }
    let advice = "free some space, or move the data directory (WORKSPACE_DATA_DIR)";
    space("disk space", &place, advice, report);
    found
}

/// The nearest existing parent directory.
fn nearest(path: &Path) -> PathBuf {
    let there = path.ancestors().skip(1).find(|it| it.is_dir());
    there.unwrap_or(Path::new("/")).to_owned()
}

/// Checks the free space of a file system.
pub(super) fn space(what: &str, place: &Path, advice: &str, report: &mut DoctorReport) {
    let found = match statvfs(place) {
        Ok(found) => found,
        Err(error) => {
            return report.warn(
                what,
                format!(
                    "cannot read the free space of {} ({error})",
                    place.display()
                ),
            );
        }
    };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    // Some file systems (btrfs) allocate inodes dynamically and report 0 of 0.
    let inodes = (found.f_files > 0).then_some(found.f_favail);
    let megabytes = free >> 20;
    let text = match inodes {
        Some(inodes) => format!("{megabytes} MiB and {inodes} inodes free"),
        None => format!("{megabytes} MiB free"),
    };
    let least = inodes.unwrap_or(u64::MAX);
    let advice = format!("{text} on the file system of {}: {advice}", place.display());
    if free < MIN_FREE_BYTES || least < MIN_FREE_INODES {
        report.problem(what, advice);
    } else if free < RECOMMENDED_FREE_BYTES || least < RECOMMENDED_FREE_INODES {
        report.warn(what, advice);
    } else {
        report.ok(what, text);
    }
}

/// Checks who can read files with keys.
pub(super) fn permissions(config: &Config, data_dir: Option<&DataDir>, report: &mut DoctorReport) {
    let what = "file permissions";
    let mut open = Vec::new();
    if let Some(dir) = data_dir {
        if dir.is_open_to_others().unwrap_or_default() {
            open.push(format!("chmod 700 {}", dir.path().display()));
        }
        for file in [dir.master_key(), dir.bootstrap_key()] {
            open.extend(is_open(&file).then(|| format!("chmod 600 {}", file.display())));
        }
        if let Some(file) = config.storage.file() {
            open.extend(is_open(&file).then(|| format!("chmod 600 {}", file.display())));
        }
    }
    for file in &config.secrets.files {
        open.extend(is_open(file).then(|| format!("chmod 600 {}", file.display())));
    }
    if open.is_empty() {
        report.ok(what, "only the owner can read keys and data");
    } else {
        let text = format!(
            "other users of this machine can read secrets: {}",
            open.join("; ")
        );
        report.warn(what, text);
    }
}

fn is_open(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|found| found.permissions().mode() & 0o077 != 0)
}
