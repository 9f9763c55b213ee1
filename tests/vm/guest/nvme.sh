# Sourced by the tests of disks served over NVMe/TCP, after lib.sh: the server, the connection, the devices.
# A test may set `address` (of the server), `nqn` and `host` before it sources this.
: "${address:=127.0.0.1:4420}" "${nqn:=nqn.2026-11.dev.zoneplug:guest}"
: "${hostid:=0b5e4f0c-5d5c-4b26-9a4e-0f4c1c1a0001}"
host=nqn.2014-08.org.nvmexpress:uuid:$hostid
at="-t tcp -a ${address%:*} -s ${address##*:}"
socket=/tmp/s

has_nvme_tcp() {
    ./zoneplug serve --help 2>&1 | grep -q -e --nvme-tcp || lacks "this build has no serve --nvme-tcp"
    modprobe nvme-tcp || lacks "this kernel has no initiator for NVMe/TCP"
    ip link set lo up
    # Linux 6.1 sends data from two adjacent huge pages as one piece. A program of the same machine that receives it is killed by
    # that kernel's check of copies ("kernel BUG at mm/usercopy.c").
    [[ $(uname -r) != 6.1.* ]] || echo never >/sys/kernel/mm/transparent_hugepage/enabled
}

# start SPEC...: a server; its process is $server.
start() {
    # The words of the last server must not be taken for those of this one.
    rm -f /tmp/serve.out
    ./zoneplug serve --nvme-tcp "$address" "$@" --nqn "$nqn" --socket $socket >/tmp/serve.out 2>&1 &
    server=$!
    until_ok 30 grep -q '^nvme connect' /tmp/serve.out || { bad "zoneplug serve --nvme-tcp $*"; sed 's/^/    | /' /tmp/serve.out; return 1; }
}
stop() { kill "$server"; wait "$server"; }
# forget: no host asks for the disks of the last server any more, so that the next one may number its disks from 1.
forget() { rm -f "/run/zoneplug/$nqn.hosts"; }

# attach [ARGUMENT...]: runs the line that the server has printed for $address.
attach() {
    local line
    line=$(grep "^nvme connect.* -s ${address##*:}" /tmp/serve.out)
    check "the printed line attaches it" bash -c "${line:-false} --hostnqn $host --hostid $hostid $*"
}
detach() { nvme disconnect -n "$nqn"; }

# device NSID: the block device of a namespace of $nqn. Linux numbers devices in the order in which it finds the
# namespaces, which is not that of their numbers.
device() {
    local b c
    # A namespace with several paths belongs to the subsystem, another one to its controller.
    for b in /sys/class/nvme/nvme*/nvme*n* /sys/class/nvme-subsystem/*/nvme*n*; do
        c=$(cat "${b%/*}/subsysnqn" 2>/dev/null)
        [ "$c" = "$nqn" ] && [ "$(cat "$b/nsid" 2>/dev/null)" = "$1" ] && [ -b "/dev/${b##*/}" ] && echo "/dev/${b##*/}" && return
    done
    return 1
}
# generic NSID: the character device of the same.
generic() {
    local g
    for g in /dev/ng*n*; do
        [ "$(cat "/sys/class/nvme/nvme$(sed 's/.*ng\([0-9]*\)n.*/\1/' <<<"$g")/subsysnqn")" = "$nqn" ] &&
            [ "$(nvme get-ns-id "$g" 2>/dev/null | sed 's/.*:\s*//')" = "$1" ] && echo "$g" && return
    done
    return 1
}
there() { device "$1" >/dev/null; }

# served NSID FILTER: of what `status` says of the disk behind a namespace, by jq.
served() { ./zoneplug status --socket $socket --json | jq -r "[.disks[] | select(.name | endswith(\"n$1\"))][0] | $2"; }
