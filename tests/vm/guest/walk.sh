# Sourced by the walks: the README's sessions with real drives, run as they are printed there. What a walk prints
# between its two marks is what the README shows (scripts/readme).
export PATH=$PWD:/usr/sbin:/sbin:$PATH COLUMNS=100
printf -- '--- walk\n'

# session: commands on standard input, one a line; each is shown, run, and must succeed. A line that ends in & goes on
# in the background, until the device that it makes is there. A line that begins with # is shown as it is.
session() {
    local line status
    while IFS= read -r line; do
        case $line in
            '' | '#'*) printf '%s\n' "$line" && continue ;;
        esac
        printf '$ %s\n' "$line"
        if [[ $line == *'&' ]]; then
            rm -f /tmp/background.out
            eval "${line%&} >/tmp/background.out 2>&1 &"
            disown
            until_ok 30 test -s /tmp/background.out || bad "nothing was said by: $line"
            until_ok 30 test -b /dev/ublkb0 || bad "no /dev/ublkb0"
            cat /tmp/background.out
            continue
        fi
        status=0
        eval "$line" >/tmp/line.out 2>&1 </dev/null || status=$?
        cat /tmp/line.out
        [[ $line != pkill* ]] || until_ok 30 sh -c '! pgrep -x zoneplug >/dev/null' || bad "it does not end: $line"
        [ $status = 0 ] || bad "status $status of: $line"
    done
    printf -- '--- end\n'
}
