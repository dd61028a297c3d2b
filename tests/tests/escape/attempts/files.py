"""Secrets and files of the service, of the host and of a neighbour."""

import ctypes
import errno
import os
import stat

from escape import AIMS, aim, attempt, outside, read, refuse, syscall

SECRETS = "secrets"
FILES = "files of others"


def in_data(*names):
    return os.path.join(aim("data"), *names)


@attempt(SECRETS, "master key")
def read_master_key():
    return read(in_data("master.key"))


@attempt(SECRETS, "bootstrap key")
def read_bootstrap_key():
    return read(in_data("bootstrap.key"))


@attempt(SECRETS, "database")
def read_database():
    return read(in_data("agent-workspace.db"), 100)


@attempt(SECRETS, "service environment")
def read_environment_of_service():
    return read(f"/proc/{outside('service')}/environ")


@attempt(SECRETS, "master key")
def read_master_key_through_root_of_service():
    return read(f"/proc/{outside('service')}/root{in_data('master.key')}")


@attempt(SECRETS, "host file")
def read_through_working_directory_of_service():
    return read(f"/proc/{outside('service')}/cwd/{os.path.relpath(aim('host_file'), aim('service_directory'))}")


@attempt(SECRETS, "database")
def read_database_through_descriptor_of_service():
    folder = f"/proc/{outside('service')}/fd"
    for name in os.listdir(folder):
        if os.readlink(f"{folder}/{name}").endswith("agent-workspace.db"):
            return read(f"{folder}/{name}", 100)
    return refuse("no descriptor of a database")


@attempt(SECRETS, "service environment")
def read_environment_of_init():
    return read(f"/proc/{aim('init')}/environ")


@attempt(SECRETS, "master key")
def read_master_key_through_root_of_init():
    return read(f"/proc/{aim('init')}/root{in_data('master.key')}")


@attempt(SECRETS, "master key")
def read_master_key_through_any_process():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in "root", "cwd":
            try:
                return read(f"/proc/{pid}/{name}/{in_data('master.key')}")
            except OSError:
                continue
    return refuse("no process shows it")


@attempt(SECRETS, "master key")
def read_master_key_through_parents_of_directories():
    for name in "workspace", "home", "tmp":
        try:
            os.chdir(aim(name))
            return read("../" * 12 + in_data("master.key").lstrip("/"))
        except OSError:
            continue
    return refuse("no directory leads to it")


@attempt(SECRETS, "host file")
def read_file_of_host():
    return read(aim("host_file"))


@attempt(SECRETS, "host file")
def read_home_of_service():
    return read(aim("home_file"))


@attempt(SECRETS, "host file")
def read_temporary_file_of_host():
    return read(aim("temporary_file"))


@attempt(SECRETS, "password hashes")
def read_password_hashes():
    return read("/etc/shadow")


@attempt(SECRETS, "host file")
def read_file_by_handle():
    """A handle leads past every mount point to a file of its file system."""
    handle = bytes.fromhex(aim("host_file_handle"))
    for folder in aim("workspace"), "/", "/usr", "/etc":
        mount = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return os.read(syscall("open_by_handle_at", mount, handle, os.O_RDONLY), 100).decode()
        except OSError as error:
            last = error
    raise last


@attempt(SECRETS, lacks="the machine has no disk, or refuses its device file")
def read_block_device_of_host():
    device = int(aim("block_device"))
    path = f"{aim('workspace')}/block-device"
    os.mknod(path, stat.S_IFBLK | 0o600, device)
    try:
        with open(path, "rb") as file:
            file.seek(1024)
            # The magic number of ext2 to ext4 is only looked for to have read something; any content is an escape.
            return file.read(1024)
    finally:
        os.unlink(path)


@attempt(SECRETS, lacks="the engine's machine has no device file of its disk")
def open_devices_of_host():
    found = [f"/dev/{name}" for name in os.listdir("/dev") if stat.S_ISBLK(os.stat(f"/dev/{name}").st_mode)]
    for path in found:
        with open(path, "rb") as file:
            file.read(512)
            return path
    return refuse("no block device", errno.ENOENT)


@attempt(FILES)
def list_sandboxes():
    if AIMS["neighbour_id"] in os.listdir(in_data("sandboxes")):
        return
    refuse("the neighbour is not there")


@attempt(FILES, "neighbour file")
def read_workspace_of_neighbour():
    return read(f"{aim('neighbour_root')}/workspace/secret.txt")


@attempt(FILES)
def write_workspace_of_neighbour():
    with open(f"{aim('neighbour_root')}/workspace/planted.txt", "w") as file:
        file.write("planted")


@attempt(FILES)
def write_home_of_neighbour():
    with open(f"{aim('neighbour_root')}/home/.profile", "w") as file:
        file.write("true")


@attempt(FILES)
def read_log_of_neighbour():
    return read(f"{aim('neighbour_root')}/agent-server.log")


@attempt(FILES, "neighbour file")
def read_temporary_file_of_neighbour():
    return read(aim("neighbour_temporary_file"))


@attempt(FILES, "neighbour file")
def read_shared_memory_file_of_neighbour():
    return read(aim("neighbour_memory_file"))


@attempt(FILES, "neighbour file")
def read_memory_segment_of_neighbour():
    segment = syscall("shmget", int(aim("segment_key")), 0, 0)
    return ctypes.string_at(syscall("shmat", segment, 0, 0o10000), 64).decode("utf-8", "replace")


@attempt(FILES, "neighbour environment")
def read_environment_of_neighbour():
    return read(f"/proc/{outside('neighbour')}/environ")


@attempt(FILES)
def change_system():
    path = "/usr/local/bin/escape-planted"
    with open(path, "w") as file:
        file.write("planted")
    os.unlink(path)


@attempt(FILES)
def change_passwords():
    with open("/etc/passwd", "r+b"):
        return


@attempt(FILES)
def change_agent_server():
    """Its program is shared by all sandboxes."""
    folder = aim("agent_server")
    with open(f"{folder}/escape-planted", "w") as file:
        file.write("planted")
    os.unlink(f"{folder}/escape-planted")


@attempt(FILES)
def change_service():
    os.chmod(aim("program"), stat.S_IMODE(os.stat(aim("program")).st_mode))


@attempt(FILES)
def run_program_of_host_through_core_pattern():
    path = "/proc/sys/kernel/core_pattern"
    old = read(path)
    with open(path, "w") as file:
        file.write(old)


@attempt(FILES)
def change_kernel_settings():
    path = "/proc/sys/vm/swappiness"
    old = read(path)
    with open(path, "w") as file:
        file.write(old)


@attempt(FILES, lacks="/sys/kernel/uevent_helper does not exist")
def run_program_of_host_through_uevent_helper():
    with open("/sys/kernel/uevent_helper", "r+"):
        return


@attempt(FILES)
def change_devices_through_sys():
    for folder, _, names in os.walk("/sys/block"):
        for name in os.listdir(folder):
            path = f"{folder}/{name}/queue/read_ahead_kb"
            old = read(path)
            with open(path, "w") as file:
                file.write(old)
            return path
        break
    return refuse("no block device", errno.ENOENT)
