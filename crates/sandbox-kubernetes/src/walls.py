"""Runs in a pod like those of sandboxes. `listen PORT` accepts connections; `try NAME=HOST:PORT …` prints what the walls let
through, as one line of JSON."""

import json
import os
import socket
import sys

TIMEOUT_SECONDS = 4
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"


def connects(address):
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_SECONDS):
            return True
    except OSError:
        return False


def own_status():
    with open("/proc/self/status") as lines:
        pairs = [line.partition(":") for line in lines]
    return {name: value.strip() for name, _, value in pairs}


def listen(port):
    family = socket.AF_INET6 if ":" in os.environ["POD_IP"] else socket.AF_INET
    with socket.create_server((os.environ["POD_IP"], port), family=family) as server:
        while True:
            server.accept()[0].close()


def attempt(targets):
    host, port = (os.environ.get("KUBERNETES_SERVICE_" + name) for name in ("HOST", "PORT"))
    if host and port:
        targets["api_server"] = f"{host}:{port}"
    status = own_status()
    print(json.dumps({
        "user": os.getuid(),
        "has_token": os.path.exists(TOKEN),
        "no_new_privileges": status.get("NoNewPrivs") == "1",
        "has_seccomp_filter": status.get("Seccomp") == "2",
        "reached": [name for name, address in targets.items() if connects(address)],
    }), flush=True)


if sys.argv[1] == "listen":
    listen(int(sys.argv[2]))
else:
    attempt(dict(target.split("=", 1) for target in sys.argv[2:]))
