//! The Landlock ruleset: one more wall behind the mounts and the network namespace.
//!
//! Landlock is in kernels from 5.13 on. An older kernel enforces what it knows of the ruleset, or nothing.

use std::io;
use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible, LandlockStatus, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};

use super::WallPlan;

/// The newest version of Landlock that the ruleset uses: files, devices, abstract unix sockets and signals.
const VERSION: ABI = ABI::V6;

/// The ruleset of a sandbox, for a process that another one confines; `None`: the kernel has no Landlock. It must be
/// created where the paths mean what they mean in the sandbox.
///
/// A process under one ruleset cannot signal one under a sibling: a parent that shall do so must not restrict itself.
pub(crate) fn landlock_ruleset(plan: &WallPlan) -> io::Result<Option<OwnedFd>> {
    Ok(ruleset(plan).map_err(io::Error::other)?.into())
}

/// Restricts the calling thread, and all it creates from now on. Returns what the kernel enforces.
pub(crate) fn restrict(plan: &WallPlan) -> io::Result<LandlockLevel> {
    let status = ruleset(plan)
        .and_then(RulesetCreated::restrict_self)
        .map_err(io::Error::other)?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::FullyEnforced, _) => LandlockLevel::Full,
        (RulesetStatus::PartiallyEnforced, LandlockStatus::Available { effective_abi, .. }) => {
            LandlockLevel::Partial(effective_abi as i32)
        }
        _ => LandlockLevel::Missing,
    })
}

/// What the kernel enforces of the ruleset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LandlockLevel {
    /// Files, devices, abstract unix sockets and signals.
    Full,
    /// What this version of Landlock knows.
    Partial(i32),
    /// The kernel has no Landlock, or it is not enabled.
    Missing,
}

fn ruleset(plan: &WallPlan) -> Result<RulesetCreated, RulesetError> {
    // A path that does not exist in the sandbox needs no rule.
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?
        .create()?
        // Names only: mounts decide which exist.
        .add_rules(path_beneath_rules(["/"], AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(
            &plan.readable,
            AccessFs::from_read(VERSION),
        ))?
        .add_rules(path_beneath_rules(
            &plan.writable,
            AccessFs::from_all(VERSION),
        ))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;
    use crate::confinement::walls::ProcessLimits;

    /// In a thread of its own, because it cannot be undone.
    #[test]
    fn only_the_plans_paths_can_be_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["readable", "writable", "hidden"] {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join("file"), name).unwrap();
        }
        let plan = WallPlan {
            readable: vec![path("readable"), path("missing")],
            writable: vec![path("writable")],
            limits: ProcessLimits::default(),
            has_memory_cgroup: false,
        };
        let is_available = landlock_ruleset(&plan).unwrap().is_some();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if restrict(&plan).unwrap() == LandlockLevel::Missing {
                    assert!(!is_available);
                    return;
                }
                assert!(fs::read(path("readable/file")).is_ok());
                assert!(fs::write(path("readable/file"), "").is_err());
                assert!(fs::write(path("writable/other"), "").is_ok());
                assert!(fs::rename(path("writable/other"), path("writable/file")).is_ok());
                assert!(File::open(path("hidden/file")).is_err());
                assert!(File::open("/etc/passwd").is_err());
            });
        });
    }
}
