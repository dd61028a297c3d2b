"""The table of attempts, and what they share.

An attempt is a function below `@attempt`. It has reached its aim when it returns, and has been refused when it raises an `OSError`.
What it returns must hold the secret that `proof` names, if there is one; the suite compares, because a sandbox has no secrets.
Every other exception is an error of the attempt.
"""

import ctypes
import errno
import os
import platform
import socket
import struct

ATTEMPTS = {}
# What a hostile agent may know of its host: process ids, paths, ports. The walls must not depend on its ignorance.
AIMS = {}
TIMEOUT_SECONDS = 2.0


class Attempt:
    def __init__(self, function, group, proof, lacks, unheld, is_bomb):
        self.function, self.group, self.proof = function, group, proof
        self.lacks, self.unheld, self.is_bomb = lacks, unheld, is_bomb


def attempt(group, proof=None, lacks=None, unheld=None, bomb=False):
    """Adds an attempt of a class.

    `lacks`: why some machine cannot show its success, although the suite is root there; `unheld`: why the walls of an
    ordinary user's service do not hold it.
    """

    def register(function):
        name = function.__name__.replace("_", "-")
        ATTEMPTS[name] = Attempt(function, group, proof, lacks, unheld, bomb)
        return function

    return register


def refuse(why, number=errno.EACCES):
    raise OSError(number, why)


class Missing(Exception):
    """The aim does not exist on this machine."""


def aim(name):
    if AIMS.get(name) in (None, ""):
        raise Missing(name)
    return AIMS[name]


def read(path, limit=65536):
    with open(path, "rb") as file:
        return file.read(limit).decode("utf-8", "replace")


# Numbers of system calls on x86_64 and aarch64.
NUMBERS = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280), "clone3": (435, 435),
    "fanotify_init": (300, 262), "fsopen": (430, 430), "init_module": (175, 105), "io_uring_setup": (425, 425),
    "kcmp": (312, 272), "keyctl": (250, 219), "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "perf_event_open": (298, 241), "pidfd_getfd": (438, 438), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41), "process_madvise": (440, 440), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "ptrace": (101, 117), "quotactl": (179, 60), "reboot": (169, 142), "setns": (308, 268), "shmat": (30, 196),
    "shmget": (29, 194), "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
LIBC = ctypes.CDLL(None, use_errno=True)
IS_X86 = platform.machine() == "x86_64"


def syscall(name, *arguments):
    """A system call; texts and bytes are passed by address."""
    number = NUMBERS[name][0 if IS_X86 else 1]
    keep = []

    def word(value):
        if value is None:
            return ctypes.c_long(0)
        if isinstance(value, int):
            return ctypes.c_long(value)
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            value = ctypes.create_string_buffer(value)
        keep.append(value)
        return ctypes.c_void_p(ctypes.addressof(value))

    LIBC.syscall.restype = ctypes.c_long
    result = LIBC.syscall(ctypes.c_long(number), *[word(value) for value in arguments])
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def may_use(name, *arguments, allowed=()):
    """A call with arguments that do nothing: it fails with one of these errors after the check of permissions."""
    try:
        syscall(name, *arguments)
    except OSError as error:
        if error.errno not in allowed:
            raise


def status_of(pid="self"):
    """The fields of `/proc/<pid>/status`."""
    lines = read(f"/proc/{pid}/status").splitlines()
    return {line.split(":", 1)[0]: line.split(":", 1)[1].strip() for line in lines if ":" in line}


def outside(name):
    """The id of a process outside. Inside another process may have the same one, which is no aim."""
    pid = int(aim(name))
    if os.path.exists(f"/proc/{pid}") and AIMS["confined"]:
        refuse(f"process {pid} is one of this sandbox")
    return pid


def iovec(address, length):
    return struct.pack("QQ", address, length)


def connect(host, port, message=b"", family=socket.AF_INET, kind=socket.SOCK_STREAM, device=None):
    """Sends a message and returns the answer."""
    with socket.socket(family, kind) as link:
        link.settimeout(TIMEOUT_SECONDS)
        if device:
            link.setsockopt(socket.SOL_SOCKET, 25, device.encode())  # SO_BINDTODEVICE
        link.connect((host, int(port)))
        link.sendall(message or b"hello")
        return receive(link)


def connect_unix(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(TIMEOUT_SECONDS)
        link.connect(path)
        link.sendall(b"hello")
        return receive(link)


def receive(link):
    parts = []
    while sum(map(len, parts)) < 65536:
        try:
            part = link.recv(65536)
        except socket.timeout:
            break
        parts.append(part)
        if not part or link.type == socket.SOCK_DGRAM:
            break
    text = b"".join(parts).decode("utf-8", "replace")
    if not text:
        refuse("no answer", errno.ECONNRESET)
    return text


def get(host, port, path, key=None):
    """The answer of an HTTP server."""
    header = f"X-Session-API-Key: {key}\r\n" if key else ""
    request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{header}Connection: close\r\n\r\n"
    answer = connect(host, port, request.encode())
    if " 200 " not in answer.split("\r\n", 1)[0]:
        refuse(answer.split("\r\n", 1)[0])
    return answer
