"""Traps in what the service reads, follows, replaces or removes of a sandbox, and of the sandbox's own state."""

import os

from escape import aim, attempt, read, refuse

TRAPS = "traps for the service"


def refuse_mount_point(directory, file):
    """Below /tmp a sandbox has directories of its own as mount points, without the file that the service has there."""
    if not os.path.exists(f"{directory}/{file}"):
        refuse("not the service's directory")


@attempt(TRAPS, "master key")
def link_to_master_key():
    path = f"{aim('workspace')}/link"
    if not os.path.islink(path):
        os.symlink(f"{aim('data')}/master.key", path)
    return read(path)


@attempt(TRAPS, "host file")
def hard_link_to_file_of_host():
    path = f"{aim('workspace')}/hard-link"
    os.link(aim("host_file"), path)
    text = read(path)
    os.unlink(path)
    return text


@attempt(TRAPS, "host file")
def move_file_of_host_and_back():
    path = f"{aim('workspace')}/moved"
    os.rename(aim("host_file"), path)
    text = read(path)
    os.rename(path, aim("host_file"))
    return text


@attempt(TRAPS)
def change_own_state():
    """The service takes the process that stands there for the sandbox's main process."""
    with open(f"{aim('root')}/process.json", "r+"):
        return


@attempt(TRAPS)
def replace_own_state():
    path = f"{aim('root')}/process.json"
    os.rename(path, path + ".moved")
    os.rename(path + ".moved", path)


@attempt(TRAPS)
def replace_own_log_by_link():
    """The service opens it for writing at the next start, and quotes its end."""
    path = f"{aim('root')}/agent-server.log"
    os.rename(path, path + ".moved")
    os.symlink(f"{aim('data')}/master.key", path)
    os.unlink(path)
    os.rename(path + ".moved", path)


@attempt(TRAPS)
def put_pipe_in_place_of_log():
    path = f"{aim('root')}/agent-server.log.2"
    os.mkfifo(path)
    os.unlink(path)
    refuse_mount_point(aim("root"), "process.json")


@attempt(TRAPS)
def hold_own_lock():
    """The service waits for it at each operation on the sandbox."""
    with open(f"{aim('root')}.lock", "r+"):
        return


@attempt(TRAPS)
def replace_own_directories_by_links():
    """The service makes, mounts and removes these."""
    for name in "workspace", "home", "tmp":
        path = aim(name)
        try:
            os.rename(path, path + ".moved")
            os.symlink(os.path.dirname(aim("host_file")), path)
            os.unlink(path)
            os.rename(path + ".moved", path)
            return path
        except OSError as error:
            last = error
    raise last


@attempt(TRAPS)
def add_sandbox():
    """The service lists each directory there as a sandbox."""
    path = f"{aim('data')}/sandboxes/escape-planted"
    os.mkdir(path)
    os.rmdir(path)
    refuse_mount_point(aim("data"), "agent-workspace.db")


@attempt(TRAPS)
def remove_state_of_neighbour():
    path = f"{aim('neighbour_root')}/process.json"
    os.rename(path, path + ".moved")
    os.rename(path + ".moved", path)


@attempt(TRAPS)
def change_rights_of_own_directory():
    """The service relies on them against other users of the machine."""
    path = aim("root")
    mode = os.stat(path).st_mode & 0o777
    os.chmod(path, 0o777)
    os.chmod(path, mode)
    refuse_mount_point(path, "process.json")


def set_traps():
    """No attempt: leaves what the service meets when it pauses, starts and removes this sandbox."""
    for folder in aim("workspace"), aim("home"), aim("tmp"):
        for name, target in (
            ("to-file", aim("host_file")),
            ("to-directory", os.path.dirname(aim("host_file"))),
            ("to-root", "/"),
            ("to-itself", "to-itself"),
        ):
            if not os.path.lexists(f"{folder}/{name}"):
                os.symlink(target, f"{folder}/{name}")
        os.mkfifo(f"{folder}/pipe")
        os.makedirs(f"{folder}/locked/deep", exist_ok=True)
        os.chmod(f"{folder}/locked/deep", 0)
        os.chmod(f"{folder}/locked", 0)
        for name in "x" * 255, "a\nb", "-rf", "\udcff", " ", "*":
            open(os.fsencode(f"{folder}/{name}"), "w").close()
    make_deep_directory(f"{aim('workspace')}/deep", 1200)


def make_deep_directory(top, depth):
    """Deeper than any path, any stack of open directories, and any careless recursion."""
    os.mkdir(top)
    os.chdir(top)
    for _ in range(depth):
        os.mkdir("directory")
        os.chdir("directory")
    os.chdir(aim("workspace"))
