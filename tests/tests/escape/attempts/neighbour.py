"""`neighbour.py SECRET DIRECTORY`: a neighbour at work. It holds a secret wherever a process may hold one."""

import ctypes
import json
import os
import subprocess
import sys
import time

secret, directory = sys.argv[1].encode(), sys.argv[2]
import escape  # noqa: E402

memory = ctypes.create_string_buffer(b"memory " + secret, 8192)
paths = [f"{directory}/secret.txt", f"{os.environ['TMPDIR']}/secret.txt", f"/dev/shm/{sys.argv[1]}"]
for path in paths:
    with open(path, "wb") as file:
        file.write(secret)

key = 0x657363 + os.getuid() % 1000
try:
    segment = escape.syscall("shmget", key, 64, 0o1666)
    escape.LIBC.shmat.restype = ctypes.c_void_p
    ctypes.memmove(escape.LIBC.shmat(segment, None, 0), secret, len(secret))
except OSError:
    key = None
try:
    escape.syscall("add_key", "user", "escape-neighbour", secret, len(secret), -4)
except OSError:
    pass

prey = subprocess.Popen(["sleep", "1000"])
state = {"address": ctypes.addressof(memory), "segment_key": key, "temporary_file": paths[1], "pid": os.getpid()}
with open(f"{directory}/neighbour.new", "w") as file:
    json.dump({**state, "prey": prey.pid}, file)
os.rename(f"{directory}/neighbour.new", f"{directory}/neighbour.json")
while True:
    time.sleep(1)
