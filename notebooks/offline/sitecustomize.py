"""Python imports this when it starts: no way out of this machine.

It stands on the path of the kernel that executes a notebook, and so of what
the cells start. It holds for all that Python does over its `socket` module,
`urllib` and `requests` among it. What C++ opens by itself, as gRPC does, it
does not see; for that and for proxies there are only variables
(`notebooks/make.py`).
"""

import ipaddress
import socket

_socket = socket.socket


def _is_here(host: object) -> bool:
    """Whether a host's name or address is this machine's own loopback."""
    if host in (None, "", b"", "localhost", b"localhost"):
        return True
    try:
        return ipaddress.ip_address(
            host.decode() if isinstance(host, bytes) else str(host)
        ).is_loopback
    except ValueError:
        return False


class _Offline(_socket):
    """A socket that reaches this machine only."""

    def _check(self, address):
        internet = self.family in (socket.AF_INET, socket.AF_INET6)
        if internet and not _is_here(address[0]):
            raise ConnectionRefusedError(
                f"Notebooks run without network. Asked for: {address}"
            )

    def connect(self, address):
        self._check(address)
        return super().connect(address)

    def connect_ex(self, address):
        self._check(address)
        return super().connect_ex(address)

    def sendto(self, data, *arguments):
        self._check(arguments[-1])
        return super().sendto(data, *arguments)


_find = socket.getaddrinfo


def _find_here(host, *arguments, **options):
    """Resolve names of this machine alone: a question would leave it."""
    if not _is_here(host):
        raise socket.gaierror(
            socket.EAI_NONAME,
            f"Notebooks run without network. Asked for: {host}",
        )
    return _find(host, *arguments, **options)


socket.socket = _Offline
socket.getaddrinfo = _find_here
