# Sourced by the tests that run blktests (the folder /blktests of the guest: a copy of it, built), after lib.sh.
[ -x /blktests/check ] || lacks "ZONEPLUG_BLKTESTS names no copy of blktests"
[ -x /blktests/src/zbdioctl ] || lacks "the copy of blktests is not built: make -k -C src in it"
# Its tests rely on udev.
unset DM_DISABLE_UDEV
cp -a /blktests /tmp/blktests 2>/dev/null
patience=600

# collection NAME DEVICE TEST...: counts of a run, without a device with fallbacks of its own (null_blk). `setting` has
# further lines for its configuration, `result[NAME TEST]` is what each test ended with.
declare -A count result
setting=
collection() {
    local name=$1 device=$2 test how
    shift 2
    rm -rf /tmp/blktests/results
    printf 'TIMEOUT=8\n%s\n%s\n' "${device:+TEST_DEVS=($device)}" "$setting" >/tmp/blktests/config
    # What does not end is a failure, and must not hold up the rest.
    (cd /tmp/blktests && timeout -k 10 $patience ./check "$@") >/tmp/blktests.out 2>&1 || [ $? -lt 124 ] ||
        bad "$name: did not end in $patience s: $(tail -1 /tmp/blktests.out)"
    count[$name]=$(awk '/\[passed\]/ { p++ } /\[failed\]/ { f++ } /\[not run\]/ { s++ } END { printf "%d passed, %d failed, %d skipped", p, f, s }' /tmp/blktests.out)
    while read -r test how; do
        # Of the variants of a test, one that fails decides.
        [ "${result[$name $test]:-}" = failed ] || result[$name $test]=$how
    done < <(sed -n 's/^\([a-z]*\/[0-9]*\) .*\[\([a-z ]*\)\].*/\1 \2/p' /tmp/blktests.out)
    note "$name: ${count[$name]}"
    grep -A2 -E '\[not run\]' /tmp/blktests.out | paste -sd' ' | sed 's/--/\n/g' | sed 's/^ */    - /' | cut -c1-150
    awk '/\[failed\]/ { p = 1 } /\[(passed|not run)\]/ { p = 0 } p' /tmp/blktests.out | head -60 | sed 's/^/    | /'
}
failures() { sed 's/.*, \([0-9]*\) failed.*/\1/' <<<"$1"; }
