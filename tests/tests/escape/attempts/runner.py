"""`runner.py AIMS [NAME...]`: makes attempts, each in a process of its own; prints one line of JSON for each.

Without names it makes all but the bombs. On the host `--list` prints the names, and `--handle PATH` the handle of
a file. `--traps AIMS` sets traps for the service.
"""

import ctypes
import json
import os
import select
import signal
import struct
import sys
import time

import escape
import files, kernel, network, processes, workspace, bombs  # noqa: E401,F401 They fill the table.

DEADLINE_SECONDS = 8
BOMB_DEADLINE_SECONDS = 20


def outcome_of(attempt):
    try:
        return "succeeded", attempt.function()
    except escape.Missing as error:
        return "missing", f"there is no {error} here"
    except MemoryError:
        return "refused", "out of memory"
    except OSError as error:
        return "refused", f"{type(error).__name__}: {error}"
    except Exception as error:  # A mistake in the attempt.
        return "broken", f"{type(error).__name__}: {error}"


def run(attempt):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        result, text = outcome_of(attempt)
        os.write(writer, json.dumps([result, str(text or "")[:30000]]).encode())
        os._exit(0)
    os.close(writer)
    end = time.monotonic() + (BOMB_DEADLINE_SECONDS if attempt.is_bomb else DEADLINE_SECONDS)
    parts = []
    while select.select([reader], [], [], max(0, end - time.monotonic()))[0]:
        part = os.read(reader, 65536)
        if not part:
            break
        parts.append(part)
        try:
            json.loads(b"".join(parts))
            break
        except ValueError:
            continue
    os.close(reader)
    try:
        os.killpg(child, signal.SIGKILL)
    except OSError:
        pass
    _, status = os.waitpid(child, 0)
    if parts:
        return json.loads(b"".join(parts))
    if attempt.is_bomb and os.WIFSIGNALED(status) and time.monotonic() < end:
        return "refused", f"ended by signal {os.WTERMSIG(status)}"
    return "broken", f"no result (wait status {status})"


def load_aims(path):
    with open(path) as file:
        escape.AIMS.update(json.load(file))


def main():
    load_aims(sys.argv[1])
    names = sys.argv[2:] or [name for name, it in escape.ATTEMPTS.items() if not it.is_bomb]
    for name in names:
        attempt = escape.ATTEMPTS[name]
        began = time.monotonic()
        result, text = run(attempt)
        fields = {"name": name, "class": attempt.group, "result": result, "text": text}
        fields.update(proof=attempt.proof, lacks=attempt.lacks, unheld=attempt.unheld, seconds=time.monotonic() - began)
        print(json.dumps(fields), flush=True)


def print_handle(path):
    """The handle of a file, with which `open_by_handle_at` opens it."""
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
    escape.syscall("name_to_handle_at", -100, path, handle, ctypes.create_string_buffer(8), 0)
    print(handle.raw[: 8 + struct.unpack_from("I", handle)[0]].hex())


if sys.argv[1] == "--handle":
    print_handle(sys.argv[2])
elif sys.argv[1] == "--list":
    print(json.dumps([[name, it.is_bomb] for name, it in escape.ATTEMPTS.items()]))
elif sys.argv[1] == "--traps":
    load_aims(sys.argv[2])
    workspace.set_traps()
else:
    main()
