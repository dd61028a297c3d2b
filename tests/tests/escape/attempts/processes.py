"""Processes of others: the service, a neighbour, the sandbox's init."""

import ctypes
import errno
import os
import resource
import signal

from escape import AIMS, aim, attempt, iovec, outside, read, refuse, status_of, syscall

PROCESSES = "processes of others"
INIT = "init of the sandbox"
SEIZE = 0x4206


def victim():
    return outside("victim")


def see(pid):
    if not read(f"/proc/{pid}/cmdline"):
        refuse("no such process", errno.ESRCH)


def trace(pid):
    """Does not stop the process. The end of this process ends it."""
    syscall("ptrace", SEIZE, pid, 0, 0)


def heap(pid):
    """The victim's buffer, whose address it has published."""
    return int(aim("victim_address"))


@attempt(PROCESSES)
def see_service():
    see(outside("service"))


@attempt(PROCESSES)
def see_neighbour():
    see(outside("neighbour"))


@attempt(PROCESSES)
def signal_service():
    os.kill(outside("service"), 0)


@attempt(PROCESSES)
def signal_neighbour():
    os.kill(victim(), signal.SIGCONT)


@attempt(PROCESSES)
def kill_neighbour():
    os.kill(outside("prey"), signal.SIGKILL)


@attempt(PROCESSES)
def signal_neighbour_by_descriptor():
    syscall("pidfd_send_signal", syscall("pidfd_open", victim(), 0), signal.SIGCONT, 0, 0)


@attempt(PROCESSES)
def signal_group_of_neighbour():
    os.killpg(os.getpgid(victim()), signal.SIGCONT)


@attempt(PROCESSES)
def trace_service():
    trace(outside("service"))


@attempt(PROCESSES)
def trace_neighbour():
    trace(victim())


@attempt(PROCESSES, "neighbour memory")
def read_memory_file_of_neighbour():
    with open(f"/proc/{victim()}/mem", "rb", 0) as file:
        file.seek(heap(victim()))
        return file.read(100).decode("utf-8", "replace")


@attempt(PROCESSES)
def write_memory_file_of_neighbour():
    with open(f"/proc/{victim()}/mem", "r+b", 0) as file:
        file.seek(heap(victim()) + 64)
        file.write(b"x")


def transfer(name):
    local = ctypes.create_string_buffer(100)
    ours = iovec(ctypes.addressof(local), 100)
    theirs = iovec(heap(victim()) + (0 if name == "process_vm_readv" else 64), 100 if name == "process_vm_readv" else 1)
    syscall(name, victim(), ours if name == "process_vm_readv" else iovec(ctypes.addressof(local), 1), 1, theirs, 1, 0)
    return local.raw.decode("utf-8", "replace")


@attempt(PROCESSES, "neighbour memory")
def read_memory_of_neighbour():
    return transfer("process_vm_readv")


@attempt(PROCESSES)
def write_memory_of_neighbour():
    transfer("process_vm_writev")


@attempt(PROCESSES)
def read_memory_map_of_service():
    if not read(f"/proc/{outside('service')}/maps"):
        refuse("empty")


@attempt(PROCESSES)
def open_memory_of_service():
    os.open(f"/proc/{outside('service')}/mem", os.O_RDWR)


@attempt(PROCESSES)
def take_descriptor_of_service():
    syscall("pidfd_getfd", syscall("pidfd_open", outside("service"), 0), 1, 0)


@attempt(PROCESSES)
def write_log_of_service():
    os.open(f"/proc/{outside('service')}/fd/1", os.O_WRONLY | os.O_APPEND)


@attempt(PROCESSES)
def list_descriptors_of_service():
    os.listdir(f"/proc/{outside('service')}/fd")


@attempt(PROCESSES)
def change_limits_of_neighbour():
    limits = resource.prlimit(victim(), resource.RLIMIT_NOFILE)
    resource.prlimit(victim(), resource.RLIMIT_NOFILE, limits)


@attempt(PROCESSES)
def change_priority_of_neighbour():
    os.setpriority(os.PRIO_PROCESS, victim(), os.getpriority(os.PRIO_PROCESS, victim()))


@attempt(PROCESSES)
def change_processors_of_neighbour():
    os.sched_setaffinity(victim(), os.sched_getaffinity(victim()))


@attempt(PROCESSES)
def make_neighbour_the_first_to_be_killed():
    with open(f"/proc/{victim()}/oom_score_adj", "w") as file:
        file.write("900")


@attempt(PROCESSES, lacks="the kernel has no kcmp")
def compare_with_service():
    syscall("kcmp", outside("service"), os.getpid(), 1, 0, 0)


@attempt(PROCESSES, lacks="the kernel does not let this advice be given to another process")
def advise_memory_of_neighbour():
    descriptor = syscall("pidfd_open", victim(), 0)
    page = heap(victim()) & ~4095
    syscall("process_madvise", descriptor, iovec(page, 4096), 1, 20, 0)  # MADV_COLD


def enter(pid, kind):
    syscall("setns", os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY), 0)


@attempt(PROCESSES)
def enter_mounts_of_service():
    enter(outside("service"), "mnt")


@attempt(PROCESSES)
def enter_network_of_service():
    enter(outside("service"), "net")


@attempt(PROCESSES)
def enter_namespaces_by_descriptor():
    syscall("setns", syscall("pidfd_open", outside("service"), 0), 0x20000 | 0x40000000)


@attempt(PROCESSES)
def enter_mounts_of_init():
    enter(aim("init"), "mnt")


@attempt(PROCESSES)
def enter_processes_of_init():
    """As a child of init's parent namespace a process would see the host."""
    enter(aim("init"), "pid")


@attempt(INIT)
def trace_init():
    trace(int(aim("init")))


@attempt(INIT)
def open_memory_of_init():
    os.open(f"/proc/{aim('init')}/mem", os.O_RDWR)


@attempt(INIT)
def see_descriptors_of_init():
    folder = f"/proc/{aim('init')}/fd"
    return [os.readlink(f"{folder}/{name}") for name in os.listdir(folder)]


@attempt(INIT)
def take_descriptors_of_init():
    init = syscall("pidfd_open", int(aim("init")), 0)
    for number in range(40):
        try:
            return syscall("pidfd_getfd", init, number, 0)
        except OSError as error:
            last = error
    raise last


@attempt(INIT)
def read_memory_of_init():
    lines = read(f"/proc/{aim('init')}/maps", 1 << 20).splitlines()
    heap = next((line for line in lines if "[heap]" in line or " rw-p " in line), None)
    if not heap:
        refuse("no memory is shown")
    start = int(heap.split("-", 1)[0], 16)
    local = ctypes.create_string_buffer(64)
    syscall("process_vm_readv", int(aim("init")), iovec(ctypes.addressof(local), 64), 1, iovec(start, 64), 1, 0)


@attempt(INIT)
def change_limits_of_init():
    limits = resource.prlimit(int(aim("init")), resource.RLIMIT_CORE)
    resource.prlimit(int(aim("init")), resource.RLIMIT_CORE, limits)


def ancestors():
    """This process's ancestors as far as they are visible: the agent server, and perhaps init."""
    pid = os.getpid()
    while pid > 1:
        yield pid
        pid = int(status_of(pid)["PPid"])
        if pid == AIMS["service"]:
            return


def descriptors():
    for pid in ancestors():
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                yield pid, name, os.readlink(f"/proc/{pid}/fd/{name}")
            except FileNotFoundError:
                continue


@attempt(INIT, lacks="a process sandbox without walls inherits no descriptors either")
def use_inherited_descriptors():
    """Each is a way out: a directory of the host, a memory file, a socket of the service."""
    own = [AIMS[name] for name in ("workspace", "home", "tmp", "root")]
    harmless = ("pipe:", "/dev/", "anon_inode:[event", "anon_inode:[pidfd]", "anon_inode:[signal", "/proc/", "socket:")
    found = []
    for pid, name, target in descriptors():
        is_own = any(target.startswith(folder) for folder in own) or target.startswith(aim("agent_server"))
        if not is_own and not target.startswith(harmless):
            found.append(f"{pid}/{name} {target}")
    return found or refuse("only its own")


@attempt(INIT, lacks="a process sandbox without walls inherits no sockets either")
def use_inherited_sockets():
    """Of the agent server's sockets all are its own: none is a Unix socket with a name, or connected to one."""
    names = {line.split()[6]: line.split()[-1] for line in read("/proc/net/unix", 1 << 20).splitlines()[1:]}
    found = []
    for pid, name, target in descriptors():
        path = names.get(target[8:-1], "") if target.startswith("socket:") else ""
        if path.startswith(("/", "@")) and not path.startswith(AIMS["tmp"]):
            found.append(f"{pid}/{name} {path}")
    return found or refuse("only its own")


def keyring_canary():
    """The number of the neighbour's key in the keyring of the user, which this session then possesses."""
    syscall("keyctl", 8, -4, -3)
    return syscall("keyctl", 10, -4, "user", "escape-neighbour", 0)


@attempt(PROCESSES, "neighbour file", lacks="the kernel has no keys")
def read_kernel_key_of_neighbour():
    buffer = ctypes.create_string_buffer(100)
    syscall("keyctl", 11, keyring_canary(), buffer, 100)
    return buffer.value.decode()


@attempt(PROCESSES, lacks="the kernel shows no keys")
def see_kernel_keys():
    if "escape-neighbour" not in read("/proc/keys", 1 << 20):
        refuse("not listed")
