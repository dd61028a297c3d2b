//! Settings and machines that do not fit.

use std::ffi::OsString;

use settings::{SettingLayers, SettingSection};

use super::*;

fn load(variables: &[(&str, &str)]) -> Result<ProcessLimits, String> {
    let variables = variables
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    let variables: Vec<(OsString, OsString)> = variables.collect();
    let layers = SettingLayers::load(vec![SettingSection::default()], None, &variables);
    let reader = SettingReader::new(&layers, &variables);
    let limits = ProcessLimits::read(&reader);
    let problems = reader.into_problems();
    if problems.is_empty() {
        Ok(limits)
    } else {
        Err(problems.join("\n"))
    }
}

type Change = fn(&mut ProcessLimits);

#[test]
fn a_limit_above_what_the_machine_has_is_named() {
    let machine = MachineLimits {
        memory: 2 << 30,
        cpus: 2,
        pids: 32_768,
        open_files: 1_000,
    };
    let none = ProcessLimits::default();
    let with = |change: fn(&mut ProcessLimits)| {
        let mut limits = none;
        change(&mut limits);
        limits.check(&machine)
    };
    assert_eq!(none.check(&machine), Ok(()));
    assert_eq!(with(|limits| limits.memory = Some(2 << 30)), Ok(()));
    let causes: [(Change, &str); 4] = [
        (
            |limits| limits.memory = Some(3 << 30),
            "process.memory is 3072 MiB, but the machine has 2048 MiB",
        ),
        (
            |limits| limits.cpus = Some(2.5),
            "process.cpus is 2.5, but the service may use 2 cores",
        ),
        (
            |limits| limits.pids = Some(40_000),
            "process.pids is 40000, but the machine allows 32768 (kernel.pid_max)",
        ),
        (
            |limits| limits.open_files = Some(1_001),
            "process.open_files is 1001, but the machine allows 1000 (fs.nr_open)",
        ),
    ];
    for (change, cause) in causes {
        assert_eq!(with(change), Err(cause.to_owned()));
    }
}

#[test]
fn this_machine_has_something() {
    let machine = MachineLimits::read();
    assert!((64 << 20..u64::MAX).contains(&machine.memory));
    assert!(machine.cpus >= 1 && machine.pids > 100);
}

#[test]
fn defaults_fit_this_machine_and_zero_is_no_limit() {
    let limits = load(&[]).unwrap();
    assert_eq!(limits.check(&MachineLimits::read()), Ok(()));
    assert!(limits.memory.is_some_and(|bytes| bytes <= 8 << 30));
    assert_eq!((limits.cpus, limits.pids), (None, Some(4_096)));
    assert_eq!(limits.open_files, Some(65_536));
    assert_eq!(limits.file_size, Some(64 << 30));
    let names = ["MEMORY", "CPUS", "PIDS", "OPEN_FILES", "FILE_SIZE"];
    let names = names.map(|name| format!("WORKSPACE_PROCESS__{name}"));
    let none: Vec<_> = names.iter().map(|name| (name.as_str(), "0")).collect();
    assert_eq!(load(&none), Ok(ProcessLimits::default()));
}

#[test]
fn invalid_limits_are_reported_with_their_setting() {
    for (name, value, part) in [
        (
            "MEMORY",
            "4GB",
            "auto, a number and a unit (KiB, MiB, GiB, TiB), or 0",
        ),
        ("MEMORY", "-1", "auto, a number and a unit"),
        ("MEMORY", "64MiB", "512MiB or more"),
        ("CPUS", "-1", "a number of cores"),
        ("CPUS", "inf", "a number of cores"),
        ("CPUS", "0.001", "a number of cores"),
        ("PIDS", "-1", "from 0"),
        ("PIDS", "5", "64 or more"),
        ("OPEN_FILES", "12", "256 or more"),
        ("FILE_SIZE", "1", "a number and a unit"),
        ("FILE_SIZE", "1KiB", "1MiB or more"),
    ] {
        let variable = format!("WORKSPACE_PROCESS__{name}");
        let error = load(&[(&variable, value)]).unwrap_err();
        assert!(error.contains(part) && error.contains(&variable), "{error}");
        assert_eq!(error.lines().count(), 1, "one problem: {error}");
    }
}
