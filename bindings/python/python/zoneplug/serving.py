"""Disks that a program serves over NVMe/TCP, as `zoneplug serve` does."""

import os

from . import _zoneplug
from .errors import Error


class Serving:
    """Disks that are served until `stop`, or the end of a `with`: see `serve`."""

    def __init__(self, disks, address, nqn, access, socket, metrics):
        served = getattr(_zoneplug, "Served", None)
        if served is None:
            raise Error._of(95, "this build serves no disks", "a build with the feature serve")
        #: The name of the subsystem.
        self.nqn = nqn
        self._served = served(disks, address, nqn, access, socket, metrics)
        #: The control socket: `zoneplug status --socket PATH` asks it.
        self.socket = self._served.socket

    @property
    def address(self):
        """The host and the port at which the disks are served."""
        return self._served.addresses[0]

    @property
    def lines(self):
        """What `zoneplug serve` prints: how clients reach the disks."""
        return self._served.lines

    @property
    def is_served(self):
        """Whether the disks are still served. If not, `stop` says why."""
        return self._served.is_served

    def stop(self):
        """Stops serving, and makes all data durable. Raises what ended the server before, if it has failed."""
        self._served.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def __repr__(self):
        host, port = self.address
        return f"<zoneplug.Serving of {self.nqn} at {host}:{port}>"


def serve(
    *disks,
    address="127.0.0.1:0",
    nqn=None,
    allow_host=None,
    allow_any_host=False,
    dhchap_key=None,
    dhchap_ctrl_key=None,
    socket=None,
    metrics=None,
):
    """Serves disks over NVMe/TCP, as namespaces 1, 2 and so on of one subsystem, until the end of a `with`.

        >>> import socket, zoneplug
        >>> with zoneplug.serve("mem,zones=8") as served:
        ...     socket.create_connection(served.address).close()
        ...     served.lines[1].split()[:3]
        ['namespace', '1', 'mem,zones=8']

    `disks` are specifications or paths. `address`: where to listen, as in `"127.0.0.1:4420"`; port 0 is a free one, which
    `served.address` names. `nqn`: the name of the subsystem. An address that other machines reach needs `allow_host`, a list of
    NQNs of hosts, `dhchap_key`, a dict of NQNs of hosts and the files of their keys, or `allow_any_host`. `dhchap_ctrl_key` is
    the file of the key by which the disks' side authenticates itself. `socket`: the path of the control socket, else one in a
    temporary directory. `metrics`: an address at which Prometheus reads metrics.

    Threads of the library serve the disks; nothing of it runs in Python. While a disk in a file is served, no other program can
    write it, nor this one.
    """
    if not disks:
        raise Error._of(22, "no disk to serve", 'zoneplug.serve("mem,zones=8")')
    nqn = nqn or f"nqn.2026-11.org.example:python-{os.getpid()}"
    hosts = None if allow_host is None else list(allow_host)
    keys = [(host, os.fspath(path)) for host, path in (dhchap_key or {}).items()]
    return Serving(list(disks), address, nqn, (hosts, allow_any_host, keys, dhchap_ctrl_key), socket, metrics)
