//! The image of the tests, built from a static busybox without a registry.

use std::fs::{self, File};

use bollard::Docker;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::StreamExt;

/// The image: `sh`, `httpd`, `dd`, … in `/bin`, and an empty `/www`. Its own command serves that on port 8000.
pub(crate) const IMAGE: &str = "agent-workspace-test/busybox:1";

const BUSYBOX: &str = "/bin/busybox";
const APPLETS: [&str; 36] = [
    "cat", "chmod", "chown", "cp", "dd", "df", "echo", "env", "false", "grep", "head", "hostname",
    "httpd", "id", "ip", "kill", "ls", "mkdir", "mount", "nc", "ping", "printf", "ps", "rm", "sh",
    "sleep", "sync", "tail", "test", "touch", "true", "umount", "uname", "vi", "wget", "yes",
];

/// Imports the image into this engine if it is missing. Concurrent test processes import it once.
pub(crate) async fn ensure_image(docker: &Docker) {
    if docker.inspect_image(IMAGE).await.is_ok() {
        return;
    }
    let path = std::env::temp_dir().join("agent-workspace-test-image.lock");
    let locked = tokio::task::spawn_blocking(move || {
        let file = File::create(path).expect("a lock file in the temporary directory");
        file.lock().expect("the lock of the test image");
        file
    });
    let locked = locked.await.expect("a thread for the lock");
    if docker.inspect_image(IMAGE).await.is_err() {
        import(docker).await;
    }
    drop(locked);
}

async fn import(docker: &Docker) {
    let busybox = fs::read(BUSYBOX).unwrap_or_else(|error| {
        panic!("{BUSYBOX} cannot be read ({error}): apt-get install busybox-static")
    });
    let (repo, tag) = IMAGE.rsplit_once(':').expect("a tag");
    let changes = [
        "CMD [\"httpd\",\"-f\",\"-p\",\"8000\",\"-h\",\"/www\"]",
        "ENV PATH=/bin",
    ];
    let options = CreateImageOptionsBuilder::new()
        .from_src("-")
        .repo(repo)
        .tag(tag)
        .changes(changes.map(str::to_owned).into())
        .build();
    let root = bollard::body_full(archive(&busybox).into());
    let mut steps = docker.create_image(Some(options), Some(root), None);
    while let Some(step) = steps.next().await {
        step.expect("the engine imports the image");
    }
}

/// A root file system as a tar archive.
fn archive(busybox: &[u8]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (dir, mode) in [
        ("bin", 0o755),
        ("etc", 0o755),
        ("tmp", 0o1777),
        ("www", 0o755),
    ] {
        entry(&mut tar, &format!("{dir}/"), '5', mode, "", &[]);
    }
    entry(
        &mut tar,
        "etc/passwd",
        '0',
        0o644,
        "",
        b"root:x:0:0::/:/bin/sh\n",
    );
    entry(&mut tar, "etc/group", '0', 0o644, "", b"root:x:0:\n");
    entry(&mut tar, "bin/busybox", '0', 0o755, "", busybox);
    for applet in APPLETS {
        entry(
            &mut tar,
            &format!("bin/{applet}"),
            '2',
            0o777,
            "busybox",
            &[],
        );
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

/// One entry of a ustar archive.
pub(crate) fn entry(
    tar: &mut Vec<u8>,
    name: &str,
    kind: char,
    mode: u32,
    link: &str,
    content: &[u8],
) {
    let mut header = [0_u8; 512];
    let mut field = |at: usize, text: &str| {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    field(0, name);
    field(100, &format!("{mode:07o}"));
    field(108, "0000000");
    field(116, "0000000");
    field(124, &format!("{:011o}", content.len()));
    field(136, "00000000000");
    field(148, "        ");
    field(156, &kind.to_string());
    field(157, link);
    field(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend_from_slice(&header);
    tar.extend_from_slice(content);
    tar.resize(tar.len().next_multiple_of(512), 0);
}
