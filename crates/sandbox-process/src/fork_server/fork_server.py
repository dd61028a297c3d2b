"""Forks agent servers from a process that has already imported their libraries.

Usage: `python -P fork_server.py SOCKET PADDING`, with an empty, existing working directory. The process imports
third-party packages, `openhands.sdk` and `openhands.tools`, but no module of `openhands.agent_server`, because those
read settings at import. It has one thread and no secrets, and it ends when its standard input closes. `PADDING` and the
variable of the same name reserve memory for the command line and the environment that `/proc` shows of a child.

A client (the init process of a sandbox) connects to SOCKET, sends one JSON message with file descriptors, and receives
`{"pid": …}` or `{"error": …}`:

    server ── forks a worker, which reads the message: this process never sees a key
                └ worker: joins the cgroups and the namespaces of the client, forks
                    └ relay: is inside the PID namespace, forks and ends, so the agent becomes a child of the client
                        └ agent: drops its rights, raises the walls, becomes the agent server

The kernel gives an orphan to the init process of the PID namespace that its *parent* lived in. That is why the relay
exists. The agent outlives this process, and the client waits for it like for any child of its own.
"""

import array
import asyncio
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import pathlib
import random
import resource
import runpy
import select
import signal
import socket
import ssl
import struct
import sys
import tempfile
import time
import traceback
import types

SETTINGS_PACKAGE = "openhands.agent_server"
ROOT_PACKAGES = ("openhands.sdk", "openhands.tools")
MAX_MESSAGE_BYTES = 4 << 20
MAX_FDS = 8
REHEARSAL_TIMEOUT_SECONDS = 60
MESSAGE_TIMEOUT = struct.pack("ll", 60, 0)

NAMESPACES = (
    os.CLONE_NEWUSER | os.CLONE_NEWNS | os.CLONE_NEWPID | os.CLONE_NEWNET | os.CLONE_NEWIPC | os.CLONE_NEWUTS
    | os.CLONE_NEWCGROUP
)  # fmt: skip
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 4, 22, 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL, SECCOMP_MODE_FILTER, SYS_LANDLOCK_RESTRICT_SELF = 4, 2, 446
CAPABILITY_VERSION_3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


# --- The server: what is imported, and what of it depends on a sandbox ---


class RecordedEnvironment(type(os.environ)):
    """Records the variables that are read while modules are imported: their values are in memory of every child."""

    reads = set()

    def __getitem__(self, name):
        # The search for a program tries a name of bytes first, which is refused.
        if isinstance(name, str):
            self.reads.add(name)
        return super().__getitem__(name)


def preload():
    """Imports the packages, then all modules outside of SETTINGS_PACKAGE that an agent server uses in a conversation.
    Returns the names of these modules; `modules.json` beside this file has them if an earlier server has found them."""
    for package in ROOT_PACKAGES:
        importlib.import_module(package)
    known = pathlib.Path(sys.argv[0]).with_name("modules.json")
    modules = json.loads(known.read_text()) if known.exists() else modules_of_agent_server()
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"not preloaded: {name}: {error!r}", file=sys.stderr)
    defer_validators()
    read_settings = [name for name in sys.modules if name.startswith(SETTINGS_PACKAGE)]
    if read_settings:
        raise RuntimeError(f"modules that read settings were imported: {read_settings[:5]}")
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise RuntimeError(f"the imports started threads: {threads - 1}")
    return modules


def defer_validators():
    """FastAPI builds a validator for each parameter of each route, a third of the time of a child's start. An agent server
    needs few of them, so they are built at the first use."""
    with contextlib.suppress(ImportError, AttributeError):
        field = importlib.import_module("fastapi._compat.v2").ModelField
        build = field.__post_init__

        def build_validator(self):
            build(self)
            return self.__dict__["_type_adapter"]

        deferred = functools.cached_property(build_validator)
        deferred.__set_name__(field, "_type_adapter")
        field._type_adapter, field.__post_init__ = deferred, lambda self: None


def modules_of_agent_server():
    """The modules that an agent server in a child loads, which ends afterwards."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        known = set(sys.modules)
        try:
            asyncio.run(asyncio.wait_for(rehearse(), REHEARSAL_TIMEOUT_SECONDS))
        except BaseException as error:
            print(f"the rehearsal ended early: {error!r}", file=sys.stderr)
        loaded = [name for name in sys.modules if name not in known and not name.startswith(SETTINGS_PACKAGE)]
        with os.fdopen(writer, "w") as pipe:
            json.dump(loaded, pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        loaded = json.load(pipe)
    os.waitpid(pid, 0)
    return loaded


async def rehearse():
    """An agent server without a socket, its own description, and a conversation whose model does not answer."""
    os.environ["OH_DEFERRED_INIT"] = "0"
    api = importlib.import_module(SETTINGS_PACKAGE + ".api").api
    importlib.import_module(SETTINGS_PACKAGE + ".__main__")
    httpx = importlib.import_module("httpx")
    model = {"model": "openai/none", "base_url": "http://127.0.0.1:1", "api_key": "none", "num_retries": 0}
    message = {"role": "user", "content": [{"type": "text", "text": "Hello"}], "run": True}
    body = {
        "agent": {"kind": "Agent", "llm": model | {"usage_id": "agent"}, "tools": []},
        "workspace": {"kind": "LocalWorkspace", "working_dir": os.getcwd()},
        "initial_message": message,
    }
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=api), base_url="http://agent-server")
    async with api.router.lifespan_context(api), client:
        await client.get("/server_info")
        conversation = (await client.post("/api/conversations", json=body)).json()["id"]
        state = "running"
        while state in ("idle", "running"):
            await asyncio.sleep(0.05)
            state = (await client.get(f"/api/conversations/{conversation}")).json()["execution_status"]


def paths_of_server(directory):
    """The objects that contain the server's working directory, as `(holder, key)`: modules keep paths below HOME and
    TMPDIR in constants. A child replaces them by those of its sandbox."""
    found = []
    for holder in gc.get_objects():
        for value in gc.get_referents(holder):
            if type(value) is str and directory in value:
                found.extend(keys_of(holder, value))
    return found


def keys_of(holder, value):
    if isinstance(holder, pathlib.PurePath):
        return [(holder, None)]
    if isinstance(holder, list):
        return [(holder, index) for index, item in enumerate(holder) if item is value]
    # Keys of a cache of `functools`: it is filled again.
    caches = [item for item in gc.get_referrers(holder) if isinstance(item, functools._lru_cache_wrapper)]
    if type(holder) is tuple and caches:
        for cache in caches:
            cache.cache_clear()
        return []
    members = holder if type(holder) is dict else getattr(holder, "__dict__", None)
    keys = [key for key, item in members.items() if item is value] if type(members) is dict else []
    # The namespace of a class is not changed behind the interpreter's caches.
    if not keys or "__module__" in members and "__qualname__" in members:
        raise RuntimeError(f"a {type(holder).__name__} keeps the path {value}, which depends on the sandbox")
    return [(members, key) for key in keys]


def relocate(found, replacements):
    def replaced(text):
        for old, new in replacements:
            text = text.replace(old, new)
        return text

    for holder, key in found:
        if isinstance(holder, pathlib.PurePath):
            moved = type(holder)(replaced(str(holder)))
            for slot in slots_of(type(holder)):
                if hasattr(holder, slot):
                    delattr(holder, slot)
                if hasattr(moved, slot):
                    setattr(holder, slot, getattr(moved, slot))
        elif isinstance(holder[key], str):
            holder[key] = replaced(holder[key])


def slots_of(path_type):
    """The attributes of its objects. From Python 3.13 on a property replaces a slot of a base class, which stays empty."""
    names = {name for base in path_type.__mro__ for name in getattr(base, "__slots__", ())}
    return [name for name in names if isinstance(getattr(path_type, name), types.MemberDescriptorType)]


def serve(listener, state):
    """Forks a worker for each connection until standard input closes. Returns in an agent: its arguments."""
    # The kernel reaps the workers.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    poll.register(listener, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if 0 in ready:
            return None
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return work(connection, state)
        connection.close()



def receive(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, MESSAGE_TIMEOUT)
    size = array.array("i").itemsize * MAX_FDS
    data, ancillary, flags, _ = connection.recvmsg(MAX_MESSAGE_BYTES, socket.CMSG_SPACE(size))
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or not data:
        raise ValueError("the message is empty or too long")
    fds = array.array("i")
    for _, _, numbers in ancillary:
        fds.frombytes(numbers[: len(numbers) - len(numbers) % fds.itemsize])
    request = json.loads(data)
    return request, dict(zip(request["fds"], fds, strict=True))


def work(connection, state):
    """Runs in the worker, which ends here, and returns only in the agent: its arguments."""
    try:
        request, fds = receive(connection)
        refuse_other_constants(request["environment"], state)
        enter(request, fds)
        reader, writer = os.pipe()
        relay = os.fork()
        if relay == 0:
            if os.fork():
                os._exit(0)
            become_agent(request, fds, state, writer)
            return request["arguments"]
        os.close(writer)
        # The agent is a child of the client as soon as the relay has been reaped.
        os.waitpid(relay, 0)
        with os.fdopen(reader, "rb") as pipe:
            answer = pipe.read() or failure(ChildProcessError("the forked process ended at once"))
    except BaseException as error:
        answer = failure(error)
    try:
        connection.send(answer)
    finally:
        os._exit(0)


def failure(error):
    traceback.print_exception(error)
    return json.dumps({"error": f"{type(error).__name__}: {error}"}).encode()


def refuse_other_constants(environment, state):
    """A variable that an import has read must have the same value in the sandbox, unless its paths are replaced."""
    environment = state["additions"] | environment
    names = RecordedEnvironment.reads - state["variables"].keys()
    names = [name for name in names if os.environ.get(name) != environment.get(name)]
    if names:
        raise ValueError(f"the libraries were imported with other values of {', '.join(sorted(names))}")


def enter(request, fds):
    for path in request["cgroups"]:
        pathlib.Path(path).write_text("0")
    if os.geteuid() == 0:
        os.setgroups([])
    os.setns(fds["init"], NAMESPACES)


def become_agent(request, fds, state, writer):
    try:
        os.setsid()
        confine(request, fds)
        isolate_memory(request, state)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(fds["output"], 1)
        os.dup2(fds["errors"], 2)
        sample = [generator.getrandbits(32) for generator in state["generators"]]
        os.write(writer, json.dumps({"pid": os.getpid(), "random": sample}).encode())
        os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    except BaseException as error:
        os.write(writer, failure(error))
        os._exit(1)


def confine(request, fds):
    """Gives up all rights, as the client has done: identity, limits, capabilities, Landlock, seccomp."""
    for limit in (getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")):
        resource.setrlimit(limit, resource.prlimit(1, limit))
    os.setresgid(*[request["gid"]] * 3)
    os.setresuid(*[request["uid"]] * 3)
    drop_capabilities()
    # The change of credentials has hidden `/proc/self`. The service must find the sandbox's marker there.
    check(libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl(PR_SET_DUMPABLE)")
    os.umask(0o022)
    os.chdir(request["directory"])
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")
    if "landlock" in fds:
        check(libc.syscall(SYS_LANDLOCK_RESTRICT_SELF, fds["landlock"], 0), "landlock_restrict_self")
    if "seccomp" in fds:
        filters = os.pread(fds["seccomp"], 1 << 20, 0)
        buffer = ctypes.create_string_buffer(filters)
        program = struct.pack("HxxxxxxP", len(filters) // 8, ctypes.addressof(buffer))
        check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0), "prctl(PR_SET_SECCOMP)")


def drop_capabilities():
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = int(file.read())
    check(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "prctl(PR_CAP_AMBIENT)")
    for capability in range(last + 1):
        check(libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), "prctl(PR_CAPBSET_DROP)")
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    check(libc.capset(header, bytes(24)), "capset")


def isolate_memory(request, state):
    """Replaces what the server's memory says about environment, paths and randomness."""
    environment, replacements = request["environment"], [(state["directory"], request["directory"])]
    for name, value in state["variables"].items():
        replacements.append((value, environment.get(name, value)))
    replacements.sort(key=lambda pair: len(pair[0]), reverse=True)
    os.environ.__class__ = RecordedEnvironment.__mro__[1]
    os.environ.clear()
    os.environ.update(state["additions"] | environment)
    time.tzset()
    tempfile.tempdir = None
    relocate(state["paths"], replacements)
    # Otherwise the operator's own file, which the imports have read.
    if "SSL_CERT_FILE" in state["variables"]:
        trust_authority(environment["SSL_CERT_FILE"], state["contexts"])
    # `random` reseeds its own generator after a fork, but not those that libraries have created.
    for generator in state["generators"]:
        generator.seed()
    write_title([sys.executable, *request["arguments"]], request["marker"])


def trust_authority(file, contexts):
    """Libraries make TLS contexts when they are imported. The last certificate in the file is that of the sandbox's
    authority; text may follow it."""
    _, begin, rest = pathlib.Path(file).read_text("latin-1").rpartition("-----BEGIN CERTIFICATE-----")
    certificate, end, _ = rest.partition("-----END CERTIFICATE-----")
    for context in contexts if end else []:
        context.load_verify_locations(cadata=begin + certificate + end)


def write_title(arguments, marker):
    """What `/proc/<pid>/cmdline` and `environ` show. The kernel has the addresses in the last fields of `stat`."""
    fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    for index, words in ((45, arguments), (47, [marker])):
        start, end = int(fields[index]), int(fields[index + 1])
        text = b"".join(word.encode() + b"\0" for word in words)
        ctypes.memmove(start, text[: end - start - 1].ljust(end - start, b"\0"), end - start)


def run(arguments):
    """As `python ARGUMENTS…`, which are `[-P] FILE …` or `-m MODULE …`."""
    words = [word for word in arguments if word != "-P"]
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def main():
    directory = os.getcwd()
    # These are of this process only: the C library has read its variable already.
    for name in ("PADDING", "MALLOC_ARENA_MAX"):
        os.environ.pop(name, None)
    initial = dict(os.environ)
    variables = {name: value for name, value in initial.items() if directory in value}
    os.environ.__class__ = RecordedEnvironment
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    modules = preload()
    gc.collect()
    state = {
        "directory": directory,
        "variables": variables,
        "additions": {name: value for name, value in os.environ.items() if initial.get(name) != value},
        "paths": paths_of_server(directory),
        "contexts": [item for item in gc.get_objects() if isinstance(item, ssl.SSLContext)],
        "generators": [item for item in gc.get_objects() if type(item) is random.Random],
    }
    libc.malloc_trim(0)
    gc.freeze()
    listener.bind(sys.argv[1])
    listener.listen(128)
    print(json.dumps({"modules": modules}), flush=True)
    return serve(listener, state)


arguments_of_agent = main()
if arguments_of_agent:
    run(arguments_of_agent)
