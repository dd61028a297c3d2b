"""Tests a fork server: two agent servers of it must behave like two that were booted the usual way.

Runs as process 1 of namespaces without other processes, so it stands for the init process of a sandbox. Standard input is
a JSON document `{"socket", "arguments", "uid", "gid", "callbacks", "children": [{"environment", "directory", "port"}, …]}`.
Prints nothing if the test passes, and ends with a traceback otherwise.
"""

import array
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import signal
import socket
import sys
import threading
import time

SESSION_KEY, SECRET_KEY = "OH_SESSION_API_KEYS_0", "OH_SECRET_KEY"
BOOT_TIMEOUT_SECONDS, RUN_TIMEOUT_SECONDS, EXIT_TIMEOUT_SECONDS = 60, 60, 20
COMPLETION = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Nothing to do."}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


class Peer(http.server.BaseHTTPRequestHandler):
    """The model and the receiver of webhooks."""

    received = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.received.append((self.path, self.headers.get("X-Session-API-Key"), self.headers.get("Authorization")))
        answer = json.dumps(COMPLETION if self.path.endswith("/chat/completions") else {}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class Child:
    def __init__(self, test, number):
        self.environment, self.directory = test["children"][number]["environment"], test["children"][number]["directory"]
        self.port, self.key = test["children"][number]["port"], self.environment[SESSION_KEY]
        self.log = pathlib.Path(self.directory, "self-test.log")
        arguments = [*test["arguments"], "--host", "127.0.0.1", "--port", str(self.port)]
        message = {key: test[key] for key in ("uid", "gid")} | {
            "arguments": arguments,
            "environment": self.environment,
            "directory": self.directory,
            "marker": "",
            "cgroups": [],
            "fds": ["init", "output", "errors"],
        }
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection, self.log.open("wb") as log:
            init = os.pidfd_open(os.getpid())
            connection.connect(test["socket"])
            fds = array.array("i", [init, log.fileno(), log.fileno()])
            connection.sendmsg([json.dumps(message).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
            answer = json.loads(connection.recv(1 << 16) or "{}")
            os.close(init)
        assert "pid" in answer, f"the fork server refused: {answer}"
        self.pid, self.random = answer["pid"], answer["random"]

    def request(self, method, path, body=None, key=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"X-Session-API-Key": key or self.key, "Content-Type": "application/json"}
        with contextlib.closing(connection):
            connection.request(method, path, body and json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if response.status < 300 and text else text.decode(errors="replace")

    def await_boot(self):
        def is_alive():
            with contextlib.suppress(OSError):
                return self.request("GET", "/alive")[0] == 200

        await_state("the agent server answers", BOOT_TIMEOUT_SECONDS, is_alive)

    def converse(self, callbacks):
        """A conversation with one call of the model. Returns the ids of its events."""
        model = {"model": "openai/m", "base_url": callbacks + "/v1", "api_key": "model-" + self.key, "usage_id": "agent"}
        workspace = {"kind": "LocalWorkspace", "working_dir": self.directory + "/workspace"}
        message = {"role": "user", "content": [{"type": "text", "text": "Hello"}], "run": True}
        body = {"agent": {"kind": "Agent", "llm": model, "tools": []}, "workspace": workspace, "initial_message": message}
        status, info = self.request("POST", "/api/conversations", body)
        assert status == 201, f"creating a conversation is {status}: {info}"
        path = "/api/conversations/" + info["id"]

        def is_finished():
            state = self.request("GET", path)[1]["execution_status"]
            assert state not in ("error", "stuck"), f"the run ended as {state}"
            return state == "finished"

        await_state("the run finishes", RUN_TIMEOUT_SECONDS, is_finished)
        directory = pathlib.Path(self.environment["OH_CONVERSATIONS_PATH"], info["id"].replace("-", ""))
        assert directory.is_dir(), f"{directory} does not exist"
        return {event["id"] for event in self.request("GET", path + "/events/search?limit=100")[1]["items"]}

    def run_command(self, command):
        body = {"command": command, "timeout": 30}
        status, output = self.request("POST", "/api/bash/execute_bash_command", body)
        assert status == 200 and output["exit_code"] == 0, f"`{command}` is {status}: {output}"
        return output["stdout"]


def await_state(what, seconds, is_reached):
    deadline = time.monotonic() + seconds
    while not is_reached():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.02)


def test_keys(child, other):
    for key, expected in ((child.key, 200), (other.key, 401), ("wrong", 401)):
        status = child.request("GET", "/api/conversations/count", key=key)[0]
        assert status == expected, f"a request is {status} instead of {expected}"


def test_environment(child):
    lines = child.run_command("env -0").split("\0")
    actual = dict(line.split("=", 1) for line in lines if "=" in line)
    # The agent server removes its own keys, and adds variables.
    hidden = {SESSION_KEY, SECRET_KEY}
    wrong = [name for name, value in child.environment.items() if name not in hidden and actual.get(name) != value]
    assert not wrong, f"commands see other values of {wrong}"
    foreign = {"PADDING", "MALLOC_ARENA_MAX"} & actual.keys()
    assert not foreign, f"commands see variables of the fork server: {foreign}"


def test_process(child):
    for file in ("environ", "cmdline"):
        text = pathlib.Path(f"/proc/{child.pid}/{file}").read_bytes()
        for name in (SESSION_KEY, SECRET_KEY):
            assert child.environment[name].encode() not in text, f"/proc shows {name} in {file}"
    assert str(child.port) in text.decode(), "/proc shows another command line"
    status = pathlib.Path(f"/proc/{child.pid}/status").read_text()
    lines = dict(line.split(":\t", 1) for line in status.splitlines())
    assert lines["NoNewPrivs"] == "1" and int(lines["CapBnd"], 16) == int(lines["CapPrm"], 16) == 0, status


def test_peer(child):
    seen = list(Peer.received)
    assert any(path.endswith("/v1/chat/completions") and key == f"Bearer model-{child.key}" for path, _, key in seen)
    await_state("webhooks arrive", RUN_TIMEOUT_SECONDS, lambda: any("/events/" in p and key == child.key for p, key, _ in Peer.received))


def test_end(child, number, expected):
    os.kill(child.pid, number)

    def has_ended():
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        assert pid == 0 or os.waitstatus_to_exitcode(status) == expected, f"the exit after {number} is {status}"
        return pid

    await_state("the agent server exits", EXIT_TIMEOUT_SECONDS, has_ended)


def main():
    test = json.load(sys.stdin)
    address = tuple(test["callbacks"].removeprefix("http://").split(":"))
    peer = http.server.ThreadingHTTPServer((address[0], int(address[1])), Peer)
    threading.Thread(target=peer.serve_forever, daemon=True).start()
    children = first, second = Child(test, 0), Child(test, 1)
    try:
        for child in children:
            child.await_boot()
        events = [child.converse(test["callbacks"]) for child in children]
        for child, other in ((first, second), (second, first)):
            test_keys(child, other)
            test_environment(child)
            test_process(child)
            test_peer(child)
        assert events[0].isdisjoint(events[1]), "two agent servers have generated the same id"
        assert all(one != two for one, two in zip(first.random, second.random)), "two agent servers share random numbers"
        test_end(first, signal.SIGTERM, -signal.SIGTERM)
        test_end(second, signal.SIGKILL, -signal.SIGKILL)
    except BaseException:
        for child in children:
            sys.stderr.write(child.log.read_text(errors="replace")[-2000:])
        raise


main()
