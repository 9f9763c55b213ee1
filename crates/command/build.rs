//! Tells the programs which commit they are built from, and with which profile. There is no time of the build in it, so two builds of a
//! commit are equal.

use std::path::Path;
use std::process::Command;

/// What git says, if it is there and has an answer.
fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8(out.stdout).ok()?.trim().to_owned())
}

/// The commit that this checkout has, and whether it was changed since.
fn checkout() -> Option<String> {
    // A source package may be unpacked inside the checkout of something else.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    // The branch's own file changes when a commit is made, HEAD when another branch is checked out, logs/HEAD with both.
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    // Nothing outside of these goes into the program.
    for path in ["../../crates", "../../Cargo.toml", "../../Cargo.lock"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let of =
        ["status", "--porcelain", "--", "../../crates", "../../Cargo.toml", "../../Cargo.lock"];
    let changed = git(&of).is_none_or(|s| !s.is_empty());
    Some(commit + if changed { " and changes" } else { "" })
}

/// The commit that `cargo package` has noted in a crate.
fn packaged() -> Option<String> {
    println!("cargo::rerun-if-changed=build.rs");
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let commit = text.split_once("\"sha1\": \"")?.1.get(..12)?;
    commit.bytes().all(|b| b.is_ascii_hexdigit()).then(|| commit.to_owned())
}

/// The profile of the build, by the name of its directory: cargo's own variable has the name of the profile that it inherits.
fn profile() -> Option<String> {
    let out = std::env::var("OUT_DIR").ok()?;
    // `OUT_DIR` is PROFILE/build/PACKAGE/out.
    Some(Path::new(&out).ancestors().nth(3)?.file_name()?.to_str()?.to_owned())
}

fn main() {
    println!("cargo::rustc-env=ZONEPLUG_PROFILE={}", profile().as_deref().unwrap_or("unknown"));
    println!("cargo::rerun-if-env-changed=ZONEPLUG_COMMIT");
    // For those who build an exported tree.
    let commit = std::env::var("ZONEPLUG_COMMIT").ok().or_else(checkout).or_else(packaged);
    // The day of the commit, for the man pages.
    let date = git(&["log", "-1", "--format=%cs"]).filter(|_| commit.is_some());
    println!("cargo::rustc-env=ZONEPLUG_DATE={}", date.as_deref().unwrap_or_default());
    println!("cargo::rustc-env=ZONEPLUG_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}
