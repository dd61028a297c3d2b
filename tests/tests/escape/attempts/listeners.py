"""`listeners.py SECRET PORT ADDRESS...`: answers with the secret at TCP and UDP ports; an address with `/` or `@` is a Unix socket.

With `--interface NAME` it first waits for this interface, and takes the addresses for its own.
"""

import os
import socket
import subprocess
import sys
import threading
import time

arguments = sys.argv[1:]
if arguments[0] == "--interface":
    name, arguments = arguments[1], arguments[2:]
    while not os.path.exists(f"/sys/class/net/{name}") and name not in [it for _, it in socket.if_nameindex()]:
        time.sleep(0.01)
    for command in (f"link set lo up", f"link set {name} up", f"addr add 10.78.0.2/24 dev {name}",
                    f"-6 addr add fd78::2/64 dev {name} nodad", "route add default via 10.78.0.1",
                    "-6 route add default via fd78::1"):
        subprocess.run(["ip", *command.split()], check=True)
    for address in arguments[2:]:
        family = ["-6"] if ":" in address else []
        subprocess.run(["ip", *family, "addr", "add", address, "dev", "lo"], check=True)
secret, port, addresses = arguments[0].encode(), int(arguments[1]), arguments[2:]


def serve(listener):
    while True:
        link, _ = listener.accept()
        link.settimeout(0.2)
        try:
            # What stays unread would reset the connection.
            link.recv(100)
        except OSError:
            pass
        try:
            link.sendall(secret)
        except OSError:
            pass
        link.close()


def echo(listener):
    while True:
        _, sender = listener.recvfrom(100)
        listener.sendto(secret, sender)


def listen(family, kind, address, work):
    listener = socket.socket(family, kind)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind(address)
    if kind == socket.SOCK_STREAM:
        listener.listen(64)
    threading.Thread(target=work, args=(listener,), daemon=True).start()


listen(socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", port), serve)
listen(socket.AF_INET, socket.SOCK_DGRAM, ("0.0.0.0", port), echo)
listen(socket.AF_INET6, socket.SOCK_STREAM, ("::", port), serve)
for address in addresses:
    if "." in address and address[0] not in "/@":
        # The answer to a datagram must come from where it was sent to.
        listen(socket.AF_INET, socket.SOCK_DGRAM, (address.split("/")[0], port), echo)
    if address[0] in "/@":
        listen(socket.AF_UNIX, socket.SOCK_STREAM, address.replace("@", "\0"), serve)
        if address[0] == "/":
            os.chmod(address, 0o777)
print("ready", flush=True)
sys.stdin.read()
