# Sourced by tests/vm/run: user-mode Linux, a kernel that is a program of this machine. It has one processor, and neither PCI nor a
# network card.

# uml_obstacle: why no test can run in it here, if so.
uml_obstacle() {
    [ "$(uname -m)" = x86_64 ] || { echo "it is built for x86_64" && return; }
    [ -z "${ZONEPLUG_VM_KERNEL:-}" ] || { echo "ZONEPLUG_VM_KERNEL asks for a kernel of Debian's" && return; }
    [ -x "$vm/boot/linux-uml" ] || cat "$vm/uml.reason" 2>/dev/null || echo "it is not built"
}

# uml_command: sets `machine`, the command that runs the guest of `boot`. The guest's memory is a file, which belongs into memory.
uml_command() {
    local nth root place=/dev/shm
    [ "$(df --output=avail -BM $place 2>/dev/null | tail -1 | tr -d ' M')" -gt "$memory" ] 2>/dev/null || place=$t
    # In virtual time an hour of sleep takes no time, and comes at the same nanosecond each time. Only a folder is read in no time.
    root=("ubd0r=$vm/root.ext4")
    [ "$(head_of "$name" time)" != virtual ] ||
        root=("root_folder=$vm/root" time-travel=inf-cpu time-travel-start=1000000 norandmaps nvme_tcp.wq_unbound=1)
    machine=(env "TMPDIR=$place" "$vm/boot/linux-uml" "mem=${memory}M" "initrd=$t/initrd.img" "${root[@]}" "uml_dir=$t/" seccomp=auto
        quiet panic=-1 con=null con0=null,fd:2 ssl=null ssl0=null,fd:4 ssl1=null,fd:5 ssl2=null,fd:6)
    [ -z "$shell" ] || machine+=(con1=fd:0,fd:3)
    for nth in "${!disks[@]}"; do machine+=("ubd$((nth + 1))=${disks[nth]}"); done
    read -r -a options <<<"${ZONEPLUG_UML_ARGS:-}"
    machine+=("${options[@]}")
}
