# Sourced by the walks: sessions of docs/drives.md and docs/ublk.md, run as they are printed there. scripts/readme puts
# what a walk prints between its two marks into these documents.
export PATH=$PWD:/usr/sbin:/sbin:$PATH COLUMNS=80
printf -- '--- walk\n'

# session: commands on standard input, one a line; each is shown, run, and must succeed. A line that ends in \ goes on
# in the next one. A command that ends in & goes on in the background, and the session waits for the device that it
# makes. A line that begins with # is shown as it is.
session() {
    local line more status
    while IFS= read -r line; do
        case $line in
            '' | '#'*) printf '%s\n' "$line" && continue ;;
        esac
        while [[ $line == *\\ ]] && IFS= read -r more; do
            line+=$'\n'$more
        done
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
        # Not `ok`, which prints a line.
        if [ $status = 0 ]; then passed=$((passed + 1)); else bad "status $status of: $line"; fi
    done
    printf -- '--- end\n'
}
