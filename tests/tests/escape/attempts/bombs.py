"""Bombs: each reaches its aim when it gets much more than what the suite's limits allow. The suite's limits are small."""

import errno
import mmap
import os
import select
import signal
import time

from escape import AIMS, aim, attempt, refuse

BOMBS = "bombs"
NO_GROUP = "without a control group memory is limited for each process only, and shared memory is not"
MIB = 1 << 20


def limit(name):
    return int(AIMS["limits"][name])


def children(count, work):
    """Starts processes that work and then wait. Kills them in the end."""
    made = []
    try:
        for _ in range(count):
            child = os.fork()
            if child == 0:
                try:
                    work()
                    time.sleep(30)
                finally:
                    os._exit(1)
            made.append(child)
        yield made
    finally:
        for child in made:
            os.kill(child, signal.SIGKILL)
        for child in made:
            os.waitpid(child, 0)


@attempt(BOMBS, bomb=True)
def fork_bomb():
    for made in children(2 * limit("pids"), lambda: None):
        return len(made)


@attempt(BOMBS, bomb=True)
def thread_bomb():
    import threading

    threading.stack_size(64 << 10)
    ready = threading.Event()
    try:
        for _ in range(2 * limit("pids")):
            threading.Thread(target=ready.wait, daemon=True).start()
    except RuntimeError as error:
        refuse(str(error), errno.EAGAIN)


def fill(size):
    """Memory with content, page by page."""
    memory = mmap.mmap(-1, size)
    for at in range(0, size, 4096):
        memory[at] = 1
    return memory


@attempt(BOMBS, unheld=NO_GROUP, bomb=True)
def memory_bomb():
    fill(3 * limit("memory") // 2)


@attempt(BOMBS, unheld=NO_GROUP, bomb=True)
def memory_bomb_of_many_processes():
    """Each is below a limit for one process."""
    parts = 8
    share = 3 * limit("memory") // 2 // parts
    reader, writer = os.pipe()

    def work():
        memory = fill(share)
        os.write(writer, b"x")
        time.sleep(20)
        memory.close()

    for made in children(parts, work):
        got = 0
        while got < parts:
            if select.select([reader], [], [], 0.05)[0]:
                got += len(os.read(reader, parts))
            ended, _ = os.waitpid(-1, os.WNOHANG)
            if ended:
                made.remove(ended)
                refuse(f"{got} of {parts} processes got their memory", errno.ENOMEM)


@attempt(BOMBS, bomb=True)
def memory_file_bomb():
    """No limit of address space counts these pages."""
    file = os.memfd_create("bomb")
    block = b"x" * MIB
    for _ in range(3 * limit("memory") // 2 // MIB):
        os.write(file, block)


@attempt(BOMBS, bomb=True)
def file_system_in_memory_bomb():
    """Files in memory are no process's memory."""
    block = b"x" * MIB
    written = 0
    last = None
    for folder in "/dev/shm", "/run", "/tmp", "/dev", "/":
        path = f"{folder}/bomb-{os.getpid()}"
        try:
            if os.statvfs(folder).f_bsize and not is_in_memory(folder):
                continue
            with open(path, "wb", 0) as file:
                while written < 3 * limit("memory") // 2:
                    written += file.write(block)
        except OSError as error:
            last = error
        finally:
            if os.path.exists(path):
                os.unlink(path)
        if written >= 3 * limit("memory") // 2:
            return f"{written >> 20} MiB"
    raise last or OSError(errno.ENOSPC, f"{written >> 20} MiB")


def is_in_memory(folder):
    with open("/proc/self/mountinfo") as file:
        kinds = {line.split()[4]: line.split(" - ")[1].split()[0] for line in file}
    return kinds.get(folder) in ("tmpfs", "devtmpfs", "ramfs")


@attempt(BOMBS, bomb=True)
def descriptor_bomb():
    opened = []
    while len(opened) < 2 * limit("open_files"):
        opened.append(os.open("/dev/null", os.O_RDONLY))


@attempt(BOMBS, bomb=True)
def large_file():
    path = f"{aim('workspace')}/large"
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with open(path, "wb", 0) as file:
            os.ftruncate(file.fileno(), 2 * limit("file_size"))
    finally:
        os.unlink(path)


@attempt(BOMBS, bomb=True)
def large_written_file():
    path = f"{aim('workspace')}/written"
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with open(path, "wb", 0) as file:
            for _ in range(2 * limit("file_size") // MIB):
                file.write(b"x" * MIB)
    finally:
        os.unlink(path)
