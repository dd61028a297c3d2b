"""Listens on the ports that agent servers are told to listen on, before they do, and tells what it was sent.

    port_thief.py MARK USER-ID

MARK is a word on the command lines of those agent servers, which everybody may read; 0 keeps the account. Goes on until its
standard input ends; then prints a line of JSON.
"""

import json
import os
import select
import socket
import sys

MARK, UID = sys.argv[1].encode(), int(sys.argv[2])
HELD_ROUNDS = 40

if UID:
    os.setgroups([])
    os.setgid(UID)
    os.setuid(UID)

told = {"taken": 0, "connections": 0, "bytes": 0}
held = {}
accepted = []
known = set()


def ports():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if MARK in words and b"--port" in words[:-1]:
            yield int(words[words.index(b"--port") + 1])


def take(port):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
    except OSError:
        listener.close()
        return
    listener.setblocking(False)
    held[port] = [listener, HELD_ROUNDS]
    told["taken"] += 1


def serve():
    for port, entry in list(held.items()):
        try:
            connection, _ = entry[0].accept()
            connection.setblocking(False)
            accepted.append(connection)
            told["connections"] += 1
        except BlockingIOError:
            pass
        entry[1] -= 1
        if entry[1] == 0:
            entry[0].close()
            del held[port]
    for connection in accepted:
        try:
            told["bytes"] += len(connection.recv(65536))
        except OSError:
            pass


stopped = select.poll()
stopped.register(0, select.POLLIN | select.POLLHUP)
while not stopped.poll(2):
    # What was seen once is wanted again: an agent server that ends leaves its port behind.
    known.update(ports())
    for port in known - held.keys():
        # Some starts are to succeed.
        if port % 3:
            take(port)
    serve()
for _ in range(1000):
    serve()
print(json.dumps(told))
