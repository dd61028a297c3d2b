//! Cgroups of this machine, where the tests may create some; else only the choice of the parent.

use std::process::{Command, Stdio};

use super::*;

#[test]
fn mount_points_are_found_by_their_controllers() {
    let mounts = "tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0\n\
                  cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0\n\
                  cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
                  cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
    let find = |kind, controller| mount_point(mounts, kind, controller);
    let path = |text: &str| Some(PathBuf::from(text));
    assert_eq!(
        find("cgroup", Some("cpu")),
        path("/sys/fs/cgroup/cpu,cpuacct")
    );
    assert_eq!(
        find("cgroup", Some("memory")),
        path("/sys/fs/cgroup/memory")
    );
    assert_eq!(find("cgroup", Some("pids")), None);
    assert_eq!(find("cgroup2", None), path("/sys/fs/cgroup/unified"));
}

#[test]
fn without_a_delegated_cgroup_the_error_names_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let mounts = format!("cgroup2 {} cgroup2 rw 0 0\n", directory.path().display());
    let error = CgroupParent::version_2(&mounts, "0::/user.slice\n", "a-").unwrap_err();
    assert!(error.contains("Delegate=yes"), "{error}");
    let error = CgroupParent::version_2("", "0::/\n", "a-").unwrap_err();
    assert!(error.contains("mount cgroup2"), "{error}");
}

/// The cgroup of a sandbox of this test; `None` where this account may not create any.
fn cgroup(name: &str) -> Option<Cgroup> {
    let installation = HostId::parse(format!("test-{}", std::process::id())).unwrap();
    let parent = CgroupParent::open(&installation).ok()?;
    Some(parent.cgroup(&SandboxId::parse(name).unwrap()))
}

/// Starts a shell in the cgroup.
fn run(cgroup: &Cgroup, script: &str) -> std::process::ExitStatus {
    let joins = cgroup.members();
    let joins = joins
        .iter()
        .map(|file| format!("echo 0 > {}", file.display()));
    let commands: Vec<String> = joins.chain([script.to_owned()]).collect();
    Command::new("sh")
        .arg("-c")
        .arg(commands.join(" && "))
        .stderr(Stdio::null())
        .status()
        .unwrap()
}

#[test]
fn a_sandbox_that_runs_out_of_memory_is_killed_and_counted() {
    let Some(cgroup) = cgroup("memory") else {
        return;
    };
    let limits = ProcessLimits {
        memory: Some(32 << 20),
        ..ProcessLimits::default()
    };
    cgroup.create(&limits).unwrap();
    assert!(run(&cgroup, "true").success());
    assert_eq!(cgroup.memory_kills(), 0);
    let status = run(&cgroup, "exec python3 -c \"x = b'x' * (96 << 20)\"");
    assert!(!status.success());
    assert_eq!(cgroup.memory_kills(), 1);
    // A new run counts from zero.
    cgroup.create(&limits).unwrap();
    assert_eq!(cgroup.memory_kills(), 0);
    cgroup.remove().unwrap();
    cgroup.remove().unwrap();
}

#[test]
fn processes_are_limited_and_a_cgroup_is_found_again_by_its_name() {
    let Some(cgroup) = cgroup("pids") else { return };
    let limits = ProcessLimits {
        pids: Some(20),
        cpus: Some(0.5),
        ..ProcessLimits::default()
    };
    cgroup.create(&limits).unwrap();
    if let Some(cpu) = &cgroup.cpu {
        let shares = |file: &str| std::fs::read_to_string(cpu.join(file)).ok();
        let shares = shares("cpu.shares").or_else(|| shares("cpu.weight"));
        assert!(
            matches!(shares.as_deref(), Some("256\n" | "25\n")),
            "{shares:?}"
        );
    }
    let bomb = "python3 -c 'import os,time\nfor _ in range(40):\n  os.fork() or (time.sleep(.2), os._exit(0))'";
    assert!(!run(&cgroup, bomb).success());
    assert!(run(&cgroup, "true").success());
    let again = self::cgroup("pids").unwrap();
    assert!(again.members().iter().all(|file| file.exists()));
    again.remove().unwrap();
    assert!(cgroup.members().iter().all(|file| !file.exists()));
}
