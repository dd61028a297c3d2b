"""Powers over the machine: mounts, namespaces, dangerous parts of the kernel, limits."""

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import resource
import signal
import stat
import struct
import subprocess
import termios
import time

from escape import AIMS, LIBC, aim, attempt, may_use, read, refuse, status_of, syscall

MOUNTS = "mounts"
NAMESPACES = "namespaces and rights"
KERNEL = "the kernel"
LIMITS = "limits"
NEW_USER, NEW_MOUNTS, NEW_NETWORK = 0x10000000, 0x20000, 0x40000000


def alone():
    """A mount namespace of its own where that is allowed, so that nothing of the machine changes."""
    try:
        syscall("unshare", NEW_MOUNTS)
        syscall("mount", "none", "/", 0, 0x44000, 0)  # Private, with all below.
    except OSError:
        pass


@attempt(MOUNTS)
def mount_file_system():
    alone()
    syscall("mount", "tmpfs", aim("tmp"), "tmpfs", 0, 0)


@attempt(MOUNTS, "master key")
def bind_data_directory():
    alone()
    syscall("mount", aim("data"), aim("tmp"), 0, 4096, 0)
    return read(f"{aim('tmp')}/master.key")


@attempt(MOUNTS)
def make_system_writable():
    alone()
    syscall("mount", "/usr", "/usr", 0, 4096, 0)
    syscall("mount", "none", "/usr", 0, 4096 | 32, 0)


@attempt(MOUNTS)
def mount_processes():
    alone()
    syscall("mount", "proc", aim("tmp"), "proc", 0, 0)


@attempt(MOUNTS)
def uncover_what_is_below_a_mount():
    alone()
    last = OSError(errno.EPERM, "nothing is mounted")
    for line in reversed(read("/proc/self/mountinfo", 1 << 20).splitlines()):
        try:
            return syscall("umount2", line.split()[4], 2)
        except OSError as error:
            last = error
    raise last


@attempt(MOUNTS)
def change_root_by_pivot():
    alone()
    syscall("mount", "tmpfs", aim("tmp"), "tmpfs", 0, 0)
    os.mkdir(f"{aim('tmp')}/old")
    syscall("pivot_root", aim("tmp"), f"{aim('tmp')}/old")


@attempt(MOUNTS, "master key")
def leave_root_by_chroot():
    """The old way out: a directory that stays open while the root moves below it."""
    outside = os.open("/", os.O_RDONLY)
    os.chroot(aim("tmp"))
    os.fchdir(outside)
    for _ in range(64):
        os.chdir("..")
    return read(f".{aim('data')}/master.key")


@attempt(MOUNTS)
def mount_by_descriptor():
    syscall("fsopen", "tmpfs", 0)


@attempt(MOUNTS)
def clone_mount():
    syscall("open_tree", -100, "/", 1)


@attempt(MOUNTS)
def change_mount_attributes():
    alone()
    syscall("mount", "/usr", "/usr", 0, 4096, 0)
    syscall("mount_setattr", -100, "/usr", 0, struct.pack("QQQQ", 0, 1, 0, 0), 32)


@attempt(MOUNTS)
def make_device_file():
    path = f"{aim('workspace')}/device"
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    try:
        with open(path, "rb") as file:
            file.read(1)
    finally:
        os.unlink(path)


@attempt(NAMESPACES)
def make_user_namespace():
    syscall("unshare", NEW_USER)


@attempt(NAMESPACES)
def make_user_namespace_by_clone3():
    """A filter cannot see the flags of clone3, which stand in memory."""
    arguments = struct.pack("8Q", NEW_USER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    if syscall("clone3", arguments, len(arguments)) == 0:
        os._exit(0)


@attempt(NAMESPACES, lacks="the machine runs no 32-bit programs")
def make_user_namespace_by_32_bit_call():
    """Numbers of another architecture, for which a filter may have no rule."""
    if platform.machine() != "x86_64":
        refuse("another architecture", errno.ENOSYS)
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    # push rbx; mov eax, 310 (unshare); mov ebx, CLONE_NEWUSER; int 0x80; pop rbx; ret
    code.write(b"\x53\xb8\x36\x01\x00\x00\xbb" + struct.pack("<I", NEW_USER) + b"\xcd\x80\x5b\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    if result < 0:
        raise OSError(-result, os.strerror(-result))


@attempt(NAMESPACES)
def make_mount_namespace():
    syscall("unshare", NEW_MOUNTS)


@attempt(NAMESPACES)
def make_network_namespace():
    syscall("unshare", NEW_NETWORK)


@attempt(NAMESPACES)
def hold_capabilities():
    held = {name: value for name, value in status_of().items() if name.startswith("Cap") and int(value, 16)}
    return held or refuse("none")


@attempt(NAMESPACES)
def gain_rights_by_program():
    """As with programs that belong to root and have the setuid bit."""
    return refuse("no new rights are given") if status_of()["NoNewPrivs"] == "1" else "new rights may be given"


@attempt(NAMESPACES, lacks="the machine has no setuid program `su`")
def run_setuid_program():
    """It asks for a password, and belongs to another user meanwhile."""
    if os.geteuid() == 0 and not AIMS["confined"]:
        os.setresuid(65534, 65534, 65534)
    own = os.geteuid()
    program = subprocess.Popen(["su", "root", "-c", "true"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    for _ in range(100):
        if program.poll() is not None:
            break
        status = status_of(program.pid)
        if status["Name"] == "su" and status["Uid"].split()[1] != str(own):
            return status["Uid"]
        time.sleep(0.01)
    return refuse("it has no other rights")


@attempt(NAMESPACES)
def become_another_user():
    os.setresuid(1234, 1234, 1234)


@attempt(NAMESPACES)
def give_file_away():
    path = f"{aim('workspace')}/given"
    open(path, "w").close()
    os.chown(path, 0 if os.geteuid() else 1234, -1)


@attempt(KERNEL, lacks="the kernel has no bpf")
def load_bpf():
    syscall("bpf", 0, struct.pack("IIIIIIIIIIII", 2, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0), 48)


@attempt(KERNEL, lacks="the processor has no performance counters here")
def open_performance_counter():
    attributes = struct.pack("IIQQQQQ", 1, 112, 0, 0, 0, 0, 1 | 1 << 5 | 1 << 6) + bytes(64)
    syscall("perf_event_open", attributes, 0, -1, -1, 0)


@attempt(KERNEL, lacks="the kernel has no keys")
def add_kernel_key():
    syscall("add_key", "user", "escape-attempt", b"x", 1, -2)


@attempt(KERNEL, lacks="the kernel has no keys")
def join_session_keyring():
    syscall("keyctl", 1, None)


@attempt(KERNEL, lacks="io_uring is off")
def set_up_io_uring():
    syscall("io_uring_setup", 1, bytes(120))


@attempt(KERNEL, lacks="the kernel has no userfaultfd")
def handle_page_faults():
    syscall("userfaultfd", 1)


@attempt(KERNEL, lacks="the kernel does not know this ioctl any more")
def type_into_terminal():
    _, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSCTTY, 0)
    fcntl.ioctl(follower, termios.TIOCSTI, b"x")


@attempt(KERNEL, lacks="the kernel does not show its memory")
def read_memory_of_kernel():
    for path in "/dev/mem", "/proc/kcore", "/dev/port":
        try:
            return os.read(os.open(path, os.O_RDONLY), 1)
        except OSError as error:
            last = error
    raise last


@attempt(KERNEL)
def read_messages_of_kernel():
    syscall("syslog", 3, ctypes.create_string_buffer(100), 100)


@attempt(KERNEL, lacks="the machine has no /dev/kmsg")
def read_kernel_message_device():
    os.read(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK), 8192)


@attempt(KERNEL)
def read_addresses_of_kernel():
    for line in read("/proc/kallsyms").splitlines():
        if int(line.split()[0], 16):
            return line
    return refuse("all are hidden")


@attempt(KERNEL, lacks="the kernel loads no modules")
def load_kernel_module():
    may_use("init_module", b"x", 1, b"", allowed=(errno.ENOEXEC,))


@attempt(KERNEL)
def restart_machine():
    may_use("reboot", 1, 1, 1, 0, allowed=(errno.EINVAL,))


@attempt(KERNEL)
def add_swap():
    may_use("swapon", "/nowhere", 0, allowed=(errno.ENOENT,))


@attempt(KERNEL)
def set_clock():
    state = ctypes.create_string_buffer(256)
    syscall("adjtimex", state)
    struct.pack_into("I", state, 0, 0x4000)  # The tick, to what it is.
    syscall("adjtimex", state)


@attempt(KERNEL)
def set_host_name():
    name = os.uname().nodename.encode()
    if LIBC.sethostname(name, len(name)):
        raise OSError(ctypes.get_errno(), "sethostname")


@attempt(KERNEL, lacks="the kernel has no process accounting")
def account_processes():
    may_use("acct", "/nowhere/at/all", allowed=(errno.ENOENT,))


@attempt(KERNEL, lacks="the kernel has no disk quotas")
def change_disk_quotas():
    may_use("quotactl", 0x80000100, None, 0, 0, allowed=(errno.ENODEV, errno.ENOTBLK, errno.ENOENT, errno.EINVAL))


@attempt(KERNEL, lacks="the kernel has no fanotify")
def watch_files_of_host():
    syscall("fanotify_init", 4, 0)


@attempt(KERNEL, lacks="the machine has no console")
def open_console():
    os.open("/dev/console", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)


@attempt(LIMITS, lacks="root has no CAP_SYS_RESOURCE here")
def raise_own_limit():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    except ValueError as error:
        refuse(str(error))


@attempt(LIMITS, lacks="root has no CAP_SYS_RESOURCE here")
def protect_from_memory_killer():
    with open("/proc/self/oom_score_adj", "r+") as file:
        if int(file.read()) <= -1000:
            refuse("it is already")
        file.seek(0)
        file.write("-1000")


@attempt(LIMITS)
def raise_own_priority():
    os.setpriority(os.PRIO_PROCESS, 0, -20)


@attempt(LIMITS, lacks="the control group has no real time")
def run_in_real_time():
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def control_groups():
    for line in read("/proc/mounts", 1 << 20).splitlines():
        fields = line.split()
        if fields[2] in ("cgroup", "cgroup2"):
            yield fields[1]


@attempt(LIMITS, lacks="no control groups are mounted")
def leave_control_group():
    last = OSError(errno.ENOENT, "no control groups are mounted")
    for folder in control_groups():
        try:
            with open(f"{folder}/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))
            return folder
        except OSError as error:
            last = error
    raise last


@attempt(LIMITS, lacks="no control groups are mounted")
def make_control_group():
    last = OSError(errno.ENOENT, "no control groups are mounted")
    for folder in control_groups():
        try:
            os.mkdir(f"{folder}/escape-attempt")
            os.rmdir(f"{folder}/escape-attempt")
            return folder
        except OSError as error:
            last = error
    raise last


@attempt(LIMITS, lacks="the kernel has no release agents")
def run_program_of_host_through_release_agent():
    last = OSError(errno.ENOENT, "no control groups are mounted")
    for folder in control_groups():
        try:
            with open(f"{folder}/release_agent", "r+"):
                return folder
        except OSError as error:
            last = error
    raise last
