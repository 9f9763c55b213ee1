//! The completions of the shells: what they offer is what the engine's tables have.

use super::*;
use zoneplug_core::disk::ATTRIBUTES;
use zoneplug_core::sched::{Policy, Scheduler};
use zoneplug_devices::emu::timing::Profile;

/// What bash offers for the last of these words, or for its last part: bash splits words at `=` and `@`.
fn bash(words: &[&str]) -> Vec<String> {
    let script = r#"
source <("$0" completions bash)
COMP_WORDS=("$0" "$@"); COMP_CWORD=$#; COMP_LINE="$0 $*"; COMP_POINT=${#COMP_LINE}
last="${COMP_WORDS[COMP_CWORD]}"
function=$(complete -p "${0##*/}"); function="${function##*-F }"
"${function%% *}" "$0" "${last##*[=@]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}""#;
    let mut command = Command::new("bash");
    let out = soon(command.args(["--norc", "-c", script, program(words)]).args(words));
    assert!(out.status.success(), "{}", text(&out.stderr));
    text(&out.stdout).lines().map(str::to_owned).collect()
}

/// Whether all of these are offered.
fn offers<'a>(words: &[&str], all: impl IntoIterator<Item = &'a str>) {
    let offered = bash(words);
    for one in all {
        assert!(offered.iter().any(|o| o == one), "{words:?}: {one} is not in {offered:?}");
    }
}

#[test]
fn bash_offers_tables_policies_profiles_and_attributes() {
    let list = ok(&["reproduce", "--list"]);
    let tables: Vec<&str> =
        list.lines().skip(1).filter_map(|l| l.split_whitespace().next()).collect();
    assert!(tables.len() > 8, "{list}");
    offers(&["reproduce", ""], tables);
    let profiles = Profile::builtin_names().map(|n| format!("sim-{n}"));
    for command in ["bench", "replay"] {
        offers(&[command, "--policy", ""], Policy::NAMES.into_iter().chain(["off"]));
        offers(&[command, "--scheduler", ""], Scheduler::NAMES);
        offers(&[command, "--disk", ""], profiles.iter().map(String::as_str));
    }
    offers(&["bench", "--disk", ""], ["mem", "null"]);
    offers(&["attr", "mem", ""], ATTRIBUTES.iter().map(|a| a.key.name));
    assert_eq!(bash(&["attr", "mem", "anti"]), ["anticipation_us"]);
    offers(&["help", ""], ["spec", "attr", "zone-wplugs"]);
}

/// What is offered is not all that is taken, and stands in no help a second time.
#[test]
fn what_is_offered_limits_nothing() {
    for args in [
        &["bench", "--disk", "mem,zones=8,zone-size=1M", "--rw", "write", "--runtime", "10ms"][..],
        &["bench", "--disk", "sim-zns1", "--policy", "fifo+300us/4s,off", "--runtime", "1ms"],
        &["reproduce", "--list", "smr"],
        &["attr", "mem", "qd1"],
    ] {
        assert_eq!(feed(args, b"").status.code(), Some(0), "{args:?}");
    }
    for command in ["reproduce", "attr", "help"] {
        assert!(!ok(&[command, "--help"]).contains("possible values"), "{command}");
    }
    fails(&["reproduce", "--list", "nosuch"], 2, "smr30");
    fails(&["bench", "--policy", "fast"], 2, "fifo, clook");
}

#[test]
fn bash_offers_the_keys_of_a_specification() {
    assert_eq!(bash(&["info", "mem,zone-s"]), ["mem,zone-size="]);
    assert_eq!(bash(&["bench", "--disk", "mem,zones=64,zone-c"]), ["64,zone-capacity="]);
    assert_eq!(bash(&["bench", "--disk=mem,zones=64,zone-c"]), ["64,zone-capacity="]);
    assert_eq!(bash(&["info", "mem,mode="]), ["plug", "none", "lock"]);
    assert_eq!(bash(&["info", "po2@sim-z"]), ["sim-zns1"]);
    // Words with a comma that are no specification are left to the others.
    assert_eq!(bash(&["bench", "--policy", "fifo,c"]), [""]);
}

/// A person who presses TAB in bash.
#[test]
fn a_tab_goes_on_with_a_specification() {
    let dir = Dir::new("tab");
    std::fs::write(
        dir.path("rc"),
        format!(
            "PS1='ready '; bind 'set bell-style none'; PATH=\"{}:$PATH\"\nsource <(zoneplug completions bash)\n",
            std::path::Path::new(&*ZONEPLUG).parent().unwrap().display()
        ),
    )
    .unwrap();
    let mut command = Command::new("bash");
    command.args(["--noprofile", "--rcfile", &dir.path("rc"), "-i"]).env("HISTFILE", "");
    let (mut child, mut terminal) = crate::terminal::on_terminal(command, 120);
    terminal.write_all(b"zoneplug info mem,zones=8,zone-s\t1M,mo\tpl\t\nexit\n").unwrap();
    let (mut seen, mut some) = (Vec::new(), [0; 4096]);
    // Reading ends with an error once bash has closed the terminal.
    while let Ok(n @ 1..) = terminal.read(&mut some) {
        seen.extend(&some[..n]);
    }
    child.wait().unwrap();
    let seen = text(&seen);
    assert!(seen.contains("mem,zones=8,zone-size=1M,mode=plug"), "{seen}");
}
