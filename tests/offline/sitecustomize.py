"""On PYTHONPATH of every page under test, and so of every process a page starts: no network but this machine's own loopback
(the notebook kernel talks to its client over that), and nothing that the package keeps for the account (INVAR_NB_ACCOUNT, a folder)."""

import os
import socket
import sys

_connect, _connect_ex, _getaddrinfo = (
    socket.socket.connect,
    socket.socket.connect_ex,
    socket.getaddrinfo,
)
_here = ("127.", "::1", "localhost")


def _refuse(host):
    raise OSError(f"pages run offline; this one reached for {host!r}")


def _is_here(host):
    return host in (None, "", b"", "0.0.0.0", "::") or str(host).startswith(_here)


def _check(sock, address):
    if sock.family in (socket.AF_INET, socket.AF_INET6) and not _is_here(address[0]):
        _refuse(address[0])


def connect(self, address):
    _check(self, address)
    return _connect(self, address)


def connect_ex(self, address):
    _check(self, address)
    return _connect_ex(self, address)


def getaddrinfo(host, *args, **kwargs):
    if not _is_here(host):
        _refuse(host)
    return _getaddrinfo(host, *args, **kwargs)


OPENING = {
    "open",
    "os.listdir",
    "os.scandir",
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
}


def _leave_alone(event, args):
    if event not in OPENING or not isinstance(args[0], str):
        return
    folder = os.environ.get("INVAR_NB_ACCOUNT")
    if folder and args[0].startswith(folder):
        raise AssertionError(
            f"pages read and write nothing of the account; this one opened {args[0]}. Set XDG_CACHE_HOME in a hidden cell"
        )


sys.addaudithook(_leave_alone)
socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo = (
    connect,
    connect_ex,
    getaddrinfo,
)
