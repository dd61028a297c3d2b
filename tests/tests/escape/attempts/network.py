"""The network of the host: its loopback interface, its neighbours, addresses that only it may reach; and Unix sockets."""

import errno
import fcntl
import os
import socket
import struct

from escape import AIMS, aim, attempt, connect, connect_unix, get, refuse

LOOPBACK = "loopback of the host"
PRIVATE = "private addresses"
CALLBACK = "callback address"
UNIX = "unix sockets"
RAW = "network of the sandbox"
GATEWAY, RESOLVER = "10.0.2.2", "10.0.2.3"
SANDBOXES = "/api/v1/sandboxes/search"


def callback():
    """The address for reports, which is all that a sandbox may reach of the service."""
    host, port = aim("callback").split(":")
    return host, int(port)


@attempt(LOOPBACK, "neighbour id")
def call_service():
    return get("127.0.0.1", aim("service_port"), SANDBOXES)


@attempt(LOOPBACK, "neighbour id")
def call_service_through_gateway():
    return get(GATEWAY, aim("service_port"), SANDBOXES)


@attempt(LOOPBACK, "neighbour id")
def call_service_through_resolver():
    return get(RESOLVER, aim("service_port"), SANDBOXES)


@attempt(LOOPBACK, "neighbour id")
def call_service_by_address_of_host():
    return get(aim("host_address"), aim("service_port"), SANDBOXES)


@attempt(LOOPBACK, "host port")
def call_database():
    return connect("127.0.0.1", aim("host_port"))


@attempt(LOOPBACK, "host port")
def call_database_through_gateway():
    return connect(GATEWAY, aim("host_port"))


@attempt(LOOPBACK, "host port")
def call_database_through_resolver():
    return connect(RESOLVER, aim("host_port"))


@attempt(LOOPBACK, "host port")
def call_database_by_ipv6():
    return connect("::1", aim("host_port"), family=socket.AF_INET6)


@attempt(LOOPBACK, "host port")
def call_database_by_mapped_address():
    return connect("::ffff:127.0.0.1", aim("host_port"), family=socket.AF_INET6)


@attempt(LOOPBACK, "host port")
def call_database_by_any_address():
    return connect("0.0.0.0", aim("host_port"))


@attempt(LOOPBACK, "host port")
def call_database_by_broadcast():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        link.settimeout(1)
        for address in "10.0.2.255", "255.255.255.255", "127.255.255.255":
            try:
                link.sendto(b"hello", (address, int(aim("host_port"))))
                return link.recv(100).decode()
            except OSError as error:
                last = error
        raise last


@attempt(LOOPBACK, "host port")
def call_database_by_datagram_through_gateway():
    return connect(GATEWAY, aim("host_port"), kind=socket.SOCK_DGRAM)


@attempt(LOOPBACK)
def call_agent_server_of_neighbour():
    return get("127.0.0.1", aim("neighbour_port"), "/health")


@attempt(LOOPBACK, "host port")
def call_host_by_its_private_address():
    return connect(aim("host_address"), aim("host_port"))


@attempt(LOOPBACK, "host port")
def call_host_by_its_public_address():
    return connect(aim("host_public_address"), aim("host_port"))


@attempt(LOOPBACK, "host port")
def call_host_by_its_ipv6_address():
    return connect(aim("host_ipv6"), aim("host_port"), family=socket.AF_INET6)


@attempt(CALLBACK, "neighbour id")
def list_sandboxes_at_callback_address():
    return get(*callback(), SANDBOXES)


@attempt(CALLBACK, "neighbour id")
def list_sandboxes_at_callback_address_with_own_key():
    return get(*callback(), SANDBOXES, aim("own_key"))


@attempt(CALLBACK)
def read_settings_at_callback_address():
    return get(*callback(), "/api/settings")


@attempt(CALLBACK)
def use_sandbox_of_neighbour_at_callback_address():
    """Even a stolen key does not lead to the neighbour: this address has no gateway."""
    return get(*callback(), "/api/profiles", aim("neighbour_key"))


@attempt(CALLBACK)
def read_pages_at_callback_address():
    for path in "/docs", "/openapi.json", "/server_info":
        try:
            return get(*callback(), path)
        except OSError as error:
            last = error
    raise last


for _name, _address in (
    ("metadata_address", "169.254.169.254"),
    ("private_address_10", "10.77.0.1"),
    ("private_address_172", "172.31.77.1"),
    ("private_address_192", "192.168.77.1"),
    ("shared_address", "100.64.77.1"),
    ("benchmark_address", "198.18.77.1"),
    ("reserved_address", "240.0.77.1"),
    ("link_local_address", "169.254.77.1"),
):

    def _call(address=_address):
        return connect(address, aim("outside_port"))

    _call.__name__ = f"call_{_name}"
    attempt(PRIVATE, "outside port")(_call)


@attempt(PRIVATE, "outside port")
def call_private_address_by_datagram():
    return connect("10.77.0.1", aim("outside_port"), kind=socket.SOCK_DGRAM)


@attempt(PRIVATE, "outside port")
def call_private_address_by_mapped_address():
    return connect("::ffff:10.77.0.1", aim("outside_port"), family=socket.AF_INET6)


@attempt(PRIVATE, "outside port")
def call_private_address_by_ipv6():
    return connect("fd77::1", aim("outside_port"), family=socket.AF_INET6)


@attempt(PRIVATE, "outside port")
def call_private_address_past_routes():
    """A socket bound to an interface takes the destination for a neighbour there when no route leads to it."""
    for index, name in socket.if_nameindex():
        try:
            return connect("10.77.0.1", aim("outside_port"), device=name)
        except OSError as error:
            last = error
    raise last


@attempt(UNIX, "host port")
def connect_to_abstract_socket():
    return connect_unix("\0" + aim("abstract_socket"))


@attempt(UNIX, "host port")
def connect_to_socket_in_data_directory():
    return connect_unix(aim("data_socket"))


@attempt(UNIX, "host port")
def connect_to_socket_in_temporary_directory():
    return connect_unix(aim("temporary_socket"))


@attempt(UNIX, "host port")
def connect_to_socket_in_run():
    """As the container engine's, the message bus's and the database's."""
    return connect_unix(aim("run_socket"))


@attempt(UNIX, "host port")
def connect_to_socket_through_init():
    return connect_unix(f"/proc/{aim('init')}/root{aim('temporary_socket')}")


@attempt(UNIX)
def connect_to_sockets_of_service():
    """Control sockets of this and of other sandboxes, the fork server's: all that the host lists."""
    for path in [*aim("sockets"), aim("data_socket")]:
        for kind in socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM:
            try:
                with socket.socket(socket.AF_UNIX, kind) as link:
                    link.connect(path)
                    return path
            except OSError as error:
                last = error
    raise last


@attempt(UNIX)
def connect_to_sockets_by_directory():
    """All sockets that can be found below the places where hosts have them."""
    own = [AIMS[name] for name in ("workspace", "home", "tmp", "root")]
    for top in "/run", "/var/run", "/tmp", os.path.dirname(AIMS["temporary_socket"]), AIMS["data"]:
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                if any(path.startswith(it) for it in own):
                    continue
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                    try:
                        link.connect(path)
                        return path
                    except OSError:
                        continue
    return refuse("none is found")


@attempt(RAW)
def open_raw_socket():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)


@attempt(RAW, lacks="the kernel has no packet sockets")
def open_packet_socket():
    """It could send frames past the routes."""
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)


@attempt(RAW, lacks="the kernel has no vsock")
def open_socket_to_hypervisor():
    """Network namespaces do not separate these."""
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)


@attempt(RAW)
def remove_route():
    """Removes a route that is not there: only then is the answer ESRCH instead of EPERM."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.bind((0, 0))
        address = struct.pack("=HH4s", 8, 1, socket.inet_aton("203.0.113.99"))
        body = struct.pack("=BBBBBBBBI", socket.AF_INET, 32, 0, 0, 254, 0, 0, 0, 0) + address
        link.send(struct.pack("=IHHII", 16 + len(body), 25, 5, 1, 0) + body)  # RTM_DELROUTE, request and acknowledge
        (number,) = struct.unpack_from("=i", link.recv(1000), 16)
        if -number not in (0, errno.ESRCH):
            raise OSError(-number, os.strerror(-number))


@attempt(RAW)
def change_interface():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        request = bytearray(struct.pack("16sH14x", b"lo", 0))
        fcntl.ioctl(link, 0x8913, request)  # SIOCGIFFLAGS
        fcntl.ioctl(link, 0x8914, bytes(request))  # SIOCSIFFLAGS


@attempt(RAW, lacks="the kernel has no tun device")
def make_interface():
    with open("/dev/net/tun", "r+b", 0) as device:
        fcntl.ioctl(device, 0x400454CA, struct.pack("16sH22x", b"escape%d", 0x1002))  # TUNSETIFF


@attempt(RAW, lacks="the kernel has no packet filter")
def change_packet_filter():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as link:
        link.bind((0, 0))
        link.send(struct.pack("=IHHIIBBH", 20, 10 << 8 | 16, 5, 1, 0, 0, 0, 0))  # NFT_MSG_GETGEN
        kind, _, _, _, number = struct.unpack_from("=HHIIi", link.recv(1000), 4)
        if kind == 2 and number:
            raise OSError(-number, os.strerror(-number))


@attempt(RAW)
def serve_at_address_of_host():
    """A sandbox may serve at any port of its own network only."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as link:
        link.bind((aim("host_address"), 81))
