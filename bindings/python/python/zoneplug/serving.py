"""Disks that a program serves over NVMe/TCP and iSCSI, as `zoneplug serve` does."""

import os

from . import _zoneplug
from .errors import Error


class Serving:
    """Disks that are served until `stop`, or the end of a `with`: see `serve`."""

    def __init__(self, disks, nvme_tcp, iscsi, conventional_only, socket, metrics):
        served = getattr(_zoneplug, "Served", None)
        if served is None:
            raise Error._of(95, "this build serves no disks", "a build with the feature serve")
        self._served = served(disks, nvme_tcp, iscsi, conventional_only, socket, metrics)
        #: The name of the subsystem; empty without NVMe/TCP.
        self.nqn = self._served.nqn
        #: The name of the target; empty without iSCSI.
        self.iqn = self._served.iqn
        #: The control socket: `zoneplug status --socket PATH` asks it.
        self.socket = self._served.socket

    @property
    def address(self):
        """The host and the port at which the disks are served over NVMe/TCP. Raises if they are not."""
        return _first(self._served.addresses, "NVMe/TCP", 'address="127.0.0.1:0"')

    @property
    def iscsi_address(self):
        """The host and the port at which the disks are served over iSCSI. Raises if they are not."""
        return _first(self._served.iscsi_addresses, "iSCSI", 'iscsi="127.0.0.1:0"')

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
        named = [(self.nqn, self._served.addresses), (self.iqn, self._served.iscsi_addresses)]
        doors = [f"{name} at {host}:{port}" for name, all in named for host, port in all]
        return f"<zoneplug.Serving of {' and '.join(doors)}>"


def _first(addresses, protocol, argument):
    if not addresses:
        raise Error._of(22, f"the disks are not served over {protocol}", f"zoneplug.serve(.., {argument})")
    return addresses[0]


def serve(
    *disks,
    address=None,
    nqn=None,
    allow_host=None,
    allow_any_host=False,
    dhchap_key=None,
    dhchap_ctrl_key=None,
    iscsi=None,
    iqn=None,
    allow_initiator=None,
    allow_any_initiator=False,
    conventional_only=False,
    chap_secret=None,
    chap_target_secret=None,
    socket=None,
    metrics=None,
):
    """Serves disks over NVMe/TCP, as namespaces 1, 2 and so on of one subsystem, or over iSCSI, until the end of a `with`.

        >>> import socket, zoneplug
        >>> with zoneplug.serve("mem,zones=8") as served:
        ...     socket.create_connection(served.address).close()
        ...     served.lines[1].split()[:3]
        ['namespace', '1', 'mem,zones=8']

    `disks` are specifications or paths. `address`: where to listen, as in `"127.0.0.1:4420"`; port 0 is a free one, which
    `served.address` names. Without an address it is a free port of this machine, or, with `iscsi`, none. `nqn`: the name of the
    subsystem. An address that other machines reach needs `allow_host`, a list of NQNs of hosts, `dhchap_key`, a dict of NQNs of
    hosts and the files of their keys, or `allow_any_host`. `dhchap_ctrl_key` is the file of the key by which the disks' side
    authenticates itself. `socket`: the path of the control socket, else one in a temporary directory. `metrics`: an address at
    which Prometheus reads metrics.

    `iscsi`: where to listen for iSCSI, as in `"127.0.0.1:3260"`. Initiators find the disks there as LUN 0, 1 and so on of one
    target, and `served.iscsi_address` names the port. With an `address` too the same disks are served over both protocols. `iqn`:
    the name of the target. An address that other machines reach needs `allow_initiator`, a list of names of initiators,
    `chap_secret`, a dict of names of initiators and the files of their secrets, or `allow_any_initiator`. `chap_target_secret` is
    the file of the secret by which the disks' side authenticates itself. `conventional_only` shows only the conventional zones at
    the beginning of each disk, as a plain disk.

    Threads of the library serve the disks; nothing of it runs in Python. While a disk in a file is served, no other program can
    write it, nor this one.
    """
    if not disks:
        raise Error._of(22, "no disk to serve", 'zoneplug.serve("mem,zones=8")')
    # A str is iterable too: each letter would be a name.
    for name, clients in (("allow_host", allow_host), ("allow_initiator", allow_initiator)):
        if isinstance(clients, str):
            raise Error._of(22, f"{name} is a str, and takes a list of names", f"{name}=[{clients!r}]")
    of_nvme_tcp = (nqn, allow_host, allow_any_host, dhchap_key, dhchap_ctrl_key)
    of_iscsi = (iqn, allow_initiator, allow_any_initiator, chap_secret, chap_target_secret)
    # Options of a protocol over which nothing is served would have no effect.
    if iscsi is None and (conventional_only or _are_given(of_iscsi)):
        raise Error._of(22, "options of iSCSI, and no address for it", 'iscsi="127.0.0.1:0"')
    if iscsi is not None and address is None and _are_given(of_nvme_tcp):
        raise Error._of(22, "options of NVMe/TCP, and an address of iSCSI alone", 'address="127.0.0.1:0"')
    if iscsi is None and address is None:
        address = "127.0.0.1:0"
    doors = _door(address, *of_nvme_tcp), _door(iscsi, *of_iscsi)
    return Serving(list(disks), *doors, conventional_only, socket, metrics)


def _are_given(options):
    return any(option is not None and option is not False for option in options)


def _door(address, name, clients, any_client, proofs, own_proof):
    """An address, a name and an access, as the library takes them. None without an address."""
    if address is None:
        return None
    clients = None if clients is None else list(clients)
    proofs = [(client, os.fspath(path)) for client, path in (proofs or {}).items()]
    return address, name, (clients, any_client, proofs, own_proof)
