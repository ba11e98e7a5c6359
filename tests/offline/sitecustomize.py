"""On PYTHONPATH of every page under test, and so of every process a page starts: no network but this machine's own loopback
(the notebook kernel talks to its client over that)."""
import socket

_connect, _connect_ex, _getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo
_here = ("127.", "::1", "localhost")


def _refuse(host):
    raise OSError(f"pages run offline; this one reached for {host!r}")


def _is_here(host):
    return host in (None, "", b"", "0.0.0.0", "::") or str(host).startswith(_here)


def _check(sock, address):
    if sock.family in (socket.AF_INET, socket.AF_INET6) and not _is_here(address[0]): _refuse(address[0])


def connect(self, address):
    _check(self, address)
    return _connect(self, address)


def connect_ex(self, address):
    _check(self, address)
    return _connect_ex(self, address)


def getaddrinfo(host, *args, **kwargs):
    if not _is_here(host): _refuse(host)
    return _getaddrinfo(host, *args, **kwargs)


socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo = connect, connect_ex, getaddrinfo
