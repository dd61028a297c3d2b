//! Builds an image with the stub agent server: its program, shared libraries, and a shell.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::Context as _;

use super::{ImageChanges, folder, hand_over, hash, import, is_there, libraries, lock, tar};
use crate::run::{output, program, run, say};

/// Change this with the recipe.
const RECIPE: &str = "1";
const REPOSITORY: &str = "agent-workspace-test/stub";
/// The label of all images of this recipe.
const KIND: &str = "agent-workspace.test-stub";
const BUSYBOX: &str = "/bin/busybox";
/// Age up to which older images are kept: another checkout may use them.
const RETENTION: &str = "48h";

/// Builds the image of the program `stub`, unless it exists.
pub(crate) fn prepare(stub: &Path) -> anyhow::Result<()> {
    let _lock = lock()?;
    let busybox = fs::canonicalize(BUSYBOX).context("busybox is not installed")?;
    let read =
        |file: &Path| fs::read(file).with_context(|| format!("cannot read {}", file.display()));
    let hash = hash([RECIPE.as_bytes(), &read(stub)?, &read(&busybox)?]);
    let tag = format!("{REPOSITORY}:{hash}");
    if !is_there(&tag, &hash) {
        say("making the image of the stub agent server");
        let place = folder()?.join("stub-image");
        let archive = folder()?.join("stub-image.tar");
        fill(&place, stub, &busybox)?;
        run(tar()
            .arg("-cf")
            .arg(&archive)
            .arg("-C")
            .arg(&place)
            .arg("."))?;
        let changes = ImageChanges::of(&hash)
            .with(format!("LABEL {KIND}=1"))
            .with("ENV PATH=/usr/bin:/bin")
            .with("WORKDIR /workspace")
            .with(r#"ENTRYPOINT ["/usr/bin/stub-agent-server", "--dir", "/stub", "--host", "0.0.0.0"]"#)
            .with(r#"CMD ["--port", "8000"]"#);
        import(&archive, &tag, &changes)?;
        fs::remove_dir_all(&place)?;
        fs::remove_file(&archive)?;
        remove_old_images();
    }
    hand_over("stub", &tag)
}

/// Removes old images of this recipe that are not in use.
fn remove_old_images() {
    let label = format!("label={KIND}");
    let until = format!("until={RETENTION}");
    // A failure only costs disk space.
    let _ = super::docker()
        .args(["image", "prune", "--all", "--force"])
        .args(["--filter", &label, "--filter", &until])
        .output();
}

fn fill(place: &Path, stub: &Path, busybox: &Path) -> anyhow::Result<()> {
    let _ = fs::remove_dir_all(place);
    for name in [
        "usr/bin",
        "bin",
        "etc",
        "root",
        "tmp",
        "run",
        "proc",
        "sys",
        "dev",
        "workspace",
        "stub",
    ] {
        fs::create_dir_all(place.join(name))?;
    }
    for open in ["tmp", "stub", "workspace"] {
        fs::set_permissions(place.join(open), fs::Permissions::from_mode(0o1777))?;
    }
    fs::copy(stub, place.join("usr/bin/stub-agent-server"))?;
    fs::copy(busybox, place.join("bin/busybox"))?;
    let commands = output(program(busybox).arg("--list"))?;
    for name in commands.lines().filter(|name| *name != "busybox") {
        symlink("busybox", place.join("bin").join(name))?;
    }
    for library in libraries([stub])? {
        let inside = place.join(library.strip_prefix("/")?);
        fs::create_dir_all(inside.parent().context("the library has no folder")?)?;
        fs::copy(&library, inside)?;
    }
    fs::write(
        place.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nagent:x:10001:10001::/workspace:/bin/sh\n",
    )?;
    fs::write(place.join("etc/group"), "root:x:0:\nagent:x:10001:\n")?;
    fs::write(place.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
    Ok(())
}
