//! Replays the corpora without libFuzzer, so that any compiler can: `scripts/fuzz --replay`.

use std::path::{Path, PathBuf};
use zoneplug_fuzz::TARGETS;

fn files(target: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let list = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut files: Vec<_> = list.map(|f| f.expect("a file").path()).collect();
    files.sort();
    files
}

#[test]
fn every_target_keeps_its_promises_on_its_corpus() {
    for (name, target) in TARGETS {
        let files = files(name);
        assert!(!files.is_empty(), "{name} has no corpus");
        for file in files {
            println!("{}", file.display());
            target(&std::fs::read(&file).expect("a file of the corpus"));
        }
    }
}

#[test]
fn corpora_are_small() {
    let all = TARGETS.iter().flat_map(|t| files(t.0));
    let bytes: u64 = all.map(|f| f.metadata().expect("a file").len()).sum();
    assert!(bytes < 300 << 10, "{bytes} bytes: scripts/fuzz --merge keeps the least");
}
