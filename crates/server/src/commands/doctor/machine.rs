//! Checks of `doctor`: the data directory and the files with keys.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::DoctorReport;
use crate::config::Config;
use crate::data_dir::DataDir;

/// The data directory, if it exists.
pub(super) fn data_dir(config: &Config, report: &mut DoctorReport) -> Option<DataDir> {
    let what = "data directory";
    let path = &config.data_dir;
    let existing = DataDir::existing(path);
    let directory = match &existing {
        Some(_) => path.clone(),
        None => nearest_parent(path),
    };
    let advice = "set WORKSPACE_DATA_DIR to a directory that this user can write";
    if let Err(error) = access(&directory, Access::WRITE_OK | Access::EXEC_OK) {
        let text = format!(
            "{} is not writable ({error}): {advice}",
            directory.display()
        );
        report.problem(what, text);
    } else if existing.is_none() && path.exists() {
        let text = format!("{} is not a directory: {advice}", path.display());
        report.problem(what, text);
    } else if existing.is_none() {
        let text = format!(
            "{} does not exist yet; the first start creates it",
            path.display()
        );
        report.ok(what, text);
    } else {
        report.ok(what, path.display().to_string());
    }
    if let Some(dir) = &existing {
        let state = if dir.is_in_use() {
            "a running service uses it"
        } else {
            "no running service uses it"
        };
        report.ok("use", state);
    }
    let advice = "free some space, or move the data directory (WORKSPACE_DATA_DIR)";
    report.free_space("disk space", &directory, advice);
    existing
}

fn nearest_parent(path: &Path) -> PathBuf {
    let parent = path.ancestors().skip(1).find(|parent| parent.is_dir());
    parent.unwrap_or(Path::new("/")).to_owned()
}

pub(super) fn permissions(config: &Config, data_dir: Option<&DataDir>, report: &mut DoctorReport) {
    let what = "file permissions";
    let (mut commands, mut files) = (Vec::new(), Vec::new());
    if let Some(dir) = data_dir {
        if dir.is_open_to_others().unwrap_or_default() {
            commands.push(format!("chmod 700 {}", dir.path().display()));
        }
        files.extend([dir.master_key(), dir.bootstrap_key()]);
        files.extend(config.storage.file());
    }
    files.extend_from_slice(&config.secrets.files);
    commands.extend(files.iter().filter_map(|file| closing_command(file)));
    if commands.is_empty() {
        let text = "files with keys and data are readable only by the service's account";
        report.ok(what, text);
    } else {
        let text = format!(
            "other users of this machine can read secrets: run {}",
            commands.join("; ")
        );
        report.warn(what, text);
    }
}

/// The command that closes a file to others, if it is open to them.
fn closing_command(file: &Path) -> Option<String> {
    let metadata = std::fs::metadata(file).ok()?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    // The service may read a file of another owner by its group only.
    let mode = if is_own { "600" } else { "o=" };
    is_open(metadata.mode(), is_own).then(|| format!("chmod {mode} {}", file.display()))
}

/// Another owner gives a file to the service by its group, as Kubernetes does with Secrets. An own file needs no group.
fn is_open(mode: u32, is_own: bool) -> bool {
    let (of_group, of_others) = (mode & 0o070, mode & 0o007);
    of_others != 0 || (is_own && of_group != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_open_to_others_by_its_mode_and_its_owner() {
        for (mode, is_own, expected) in [
            (0o600, true, false),
            (0o640, true, true),
            (0o604, true, true),
            (0o440, false, false),
            (0o444, false, true),
        ] {
            assert_eq!(is_open(mode, is_own), expected, "{mode:o} {is_own}");
        }
    }
}
