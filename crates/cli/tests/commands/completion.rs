//! The completions of the shells: what they offer is what the engine's tables have.

use super::*;
use zoneplug_core::disk::ATTRIBUTES;
use zoneplug_core::sched::{Policy, Scheduler};
use zoneplug_devices::emu::timing::Profile;

/// What bash offers for the last of these words.
fn bash(words: &[&str]) -> Vec<String> {
    let script = r#"
source <("$0" completions bash)
COMP_WORDS=(zoneplug "$@"); COMP_CWORD=$#; COMP_LINE="zoneplug $*"; COMP_POINT=${#COMP_LINE}
_zoneplug zoneplug "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}""#;
    let mut command = Command::new("bash");
    let out = soon(command.args(["--norc", "-c", script, ZONEPLUG]).args(words));
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
