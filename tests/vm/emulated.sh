# Sourced by tests/vm/run: the emulated machine, with a stock Debian kernel.
qemu=${ZONEPLUG_QEMU:-qemu-system-x86_64}

emulated_ready() { command -v "$qemu" >/dev/null || fail "there is no $qemu" "apt-get install qemu-system-x86"; }

# emulated_command KERNEL: sets `machine`, the command that runs the guest of `boot`. Its serial ports are what the kernel says, what the
# test prints, and the test's status.
emulated_command() {
    local folder size options option nth=0
    machine=("$qemu" -accel "tcg,thread=multi,tb-size=512")
    [ "$counted" != yes ] || machine=("$qemu" -accel "tcg,thread=single,tb-size=512" -icount "shift=0,sleep=off")
    machine+=(-cpu max -smp "${cpus:-$(head_of "$name" cpus)}" -m "$memory" -M "q35,hpet=off" -nic none -display none -vga none -no-reboot -monitor none
        -kernel "$vm/boot/vmlinuz-$1" -initrd "$t/initrd.img"
        -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable random.trust_cpu=on nowatchdog rcupdate.rcu_expedited=1"
        -drive "file=$vm/root.ext4,if=none,id=root,format=raw,readonly=on,file.locking=off"
        -device "virtio-blk-pci,drive=root,serial=root"
        -serial "file:$t/console" -serial "file:$t/out" -serial "file:$t/status")
    for folder in "${!folders[@]}"; do
        machine+=(-fsdev "local,id=$folder,path=${folders[$folder]},security_model=none,multidevs=remap"
            -device "virtio-9p-pci,fsdev=$folder,mount_tag=$folder")
    done
    while read -r size options; do
        [ -n "$size" ] || continue
        truncate -s "$size" "$t/zns$nth"
        size=logical_block_size=4096,physical_block_size=4096
        for option in $options; do size+=,$option; done
        machine+=(-drive "file=$t/zns$nth,if=none,id=zns$nth,format=raw" -device "nvme,serial=zns$nth,id=nvme$nth"
            -device "nvme-ns,bus=nvme$nth,drive=zns$nth,zoned=on,$size")
        nth=$((nth + 1))
    done < <(head_of "$name" zns; [ ${#drives[@]} = 0 ] || printf '%s\n' "${drives[@]}")
    [ -z "$(head_of "$name" serves)" ] || machine+=(-netdev user,id=net0 -device virtio-net-pci,netdev=net0)
    for nth in "${!disks[@]}"; do
        machine+=(-drive "file=${disks[nth]},if=none,id=disk$nth,format=raw" -device "virtio-blk-pci,drive=disk$nth,serial=disk$nth")
    done
}
