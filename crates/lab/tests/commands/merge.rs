//! Shards of a simulation or of a sweep, put together: the figures are those of one run, and what is missing is named.

use crate::*;

/// The document of a shard, in a file.
fn shard(dir: &Dir, seeds: &str, number: u32, of: u32) -> String {
    let path = dir.path(&format!("{seeds}.{number}"));
    let shard = format!("{number}/{of}");
    std::fs::write(&path, ok(&["sim", "--seeds", seeds, "--shard", &shard, "--json"])).unwrap();
    path
}

/// A file with this shard's document, in which `f` has changed something.
fn changed(path: &str, f: impl FnOnce(&mut Value)) -> String {
    let mut v: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    f(&mut v);
    let to = format!("{path}.changed");
    std::fs::write(&to, v.to_string()).unwrap();
    to
}

#[test]
fn merged_shards_are_one_run() {
    let dir = Dir::new("merge");
    let parts: Vec<String> = (1..=4).map(|i| shard(&dir, "1..30", i, 4)).collect();
    let whole = json(&["sim", "--seeds", "1..30", "--json"]);
    // In any order.
    let merged = json(&["merge", &parts[2], &parts[0], &parts[3], &parts[1], "--json"]);
    assert_eq!((&merged["worlds"], &merged["shards"]), (&30.into(), &4.into()));
    for (key, value) in whole.as_object().unwrap() {
        // Those of time are not the same in two runs.
        if !["elapsed_s", "worlds_per_minute", "bios_per_s"].contains(&key.as_str()) {
            assert_eq!(&merged[key], value, "{key}");
        }
    }
    let said = ok(&["merge", &parts[0], &parts[1], &parts[2], &parts[3]]);
    assert!(
        said.contains("30 worlds in ") && said.contains("4 shards of the seeds 1..30"),
        "{said}"
    );
    // One after the other on standard input.
    let all: Vec<u8> = parts.iter().flat_map(|p| std::fs::read(p).unwrap()).collect();
    let piped: Value = serde_json::from_slice(&ok_with(&["merge", "-", "--json"], &all)).unwrap();
    assert_eq!(piped, merged);
    let one = ok(&["sim", "--seeds", "1..30", "--shard", "2/4"]);
    assert!(
        one.contains("8 worlds in ") && one.contains("shard 2 of 4 of the seeds 1..30"),
        "{one}"
    );
}

#[test]
fn shards_that_are_not_one_whole_run_are_refused() {
    let dir = Dir::new("merge-wrong");
    let [a, b, c] = [1, 2, 3].map(|i| shard(&dir, "1..9", i, 3));
    fails(&["merge", &a, &c], 2, "error: shard 2 of 3 is missing");
    fails(&["merge", &a, &c], 2, "try: zoneplug-lab sim --seeds 1..9 --shard 2/3 --json\n");
    fails(&["merge", &b], 2, "error: shards 1, 3 of 3 are missing");
    fails(&["merge", &a, &b, &c, &b], 2, "shard 2 of 3 is there twice");
    let other = shard(&dir, "1..8", 3, 3);
    fails(&["merge", &a, &b, &other], 2, "of 3 shards of the seeds 1..8");
    let version = changed(&c, |v| v["zoneplug"] = "9.9".into());
    fails(&["merge", &a, &b, &version], 2, "(zoneplug 9.9)");
    fails(&["merge", &version], 2, "was made by zoneplug 9.9");
    let short = changed(&b, |v| v["worlds"] = 2.into());
    fails(&["merge", &a, &short, &c], 2, "shard 2 of 3 has run 2 of its 3 seeds");
    fails(&["merge", &a, &short, &c], 2, "try: zoneplug-lab sim --seeds 1..9 --shard 2/3 --json");
    let class = changed(&b, |v| v["classes"]["r1"] = Value::Null);
    fails(&["merge", &a, &class, &c], 2, "has no results of a shard");
    let many = changed(&b, |v| v["shard"]["of"] = u64::MAX.into());
    fails(&["merge", &many], 2, "are missing");
    let whole = dir.path("whole");
    std::fs::write(&whole, ok(&["sim", "--seeds", "1..9", "--json"])).unwrap();
    fails(&["merge", &whole], 2, "has a whole run, not a shard of one");
    for text in ["", "[]", "{}", "what", "{\"schema\":1}", "{\"schema\":1,\"worlds\":3}"] {
        std::fs::write(&whole, text).unwrap();
        fails(&["merge", &whole], 2, "has no results of a shard");
    }
    let refused = feed(&["sim", "--seeds", "1..2", "--shard", "1/3", "--json"], b"");
    assert_eq!(refused.status.code(), Some(2));
    std::fs::write(&whole, refused.stdout).unwrap();
    fails(&["merge", &whole], 2, "has no figures: 3 shards of 2 seeds");
    fails(&["merge", &dir.path("none")], 3, "reading ");
    fails(&["sim", "--shard", "0/3"], 2, "I/N, as in 3/100");
    fails(&["sim", "--seed", "3", "--shard", "1/3"], 2, "");
}

#[test]
fn a_shard_that_broke_a_promise_fails_the_whole() {
    let dir = Dir::new("merge-broken");
    let [a, b] = [1, 2].map(|i| shard(&dir, "1..8", i, 2));
    let broken = changed(&b, |v| {
        v["worlds"] = 1.into();
        v["failed_seed"] = 6.into();
        v["error"] = serde_json::json!({"kind": "io", "exit": 1,
            "message": "seed 6: a write is gone", "hint": "run it again: zoneplug-lab sim --seed 6"});
    });
    let out = feed(&["merge", &a, &broken, "--json"], b"");
    let v: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (out.status.code(), &v["failed_seed"], &v["worlds"]),
        (Some(1), &6.into(), &5.into())
    );
    assert_eq!(v["error"]["message"], "seed 6: a write is gone");
    fails_after_text(&["merge", &a, &broken], "run it again: zoneplug-lab sim --seed 6");
}

/// A command that prints its figures, and fails.
fn fails_after_text(args: &[&str], what: &str) {
    let out = feed(args, b"");
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stdout).contains("5 worlds in "), "{}", text(&out.stdout));
    assert!(text(&out.stderr).contains(what), "{}", text(&out.stderr));
}

/// The file of a shard of a sweep of five cells, with the lines of these cells.
fn sweep(dir: &Dir, number: u32, cells: &[u32]) -> String {
    let path = dir.path(&format!("sweep.{number}"));
    let shard = format!(r#"{{"number":{number},"of":2}}"#);
    let mut text = format!(
        r#"{{"cells":5,"run":"m:f","shard":{shard},"zoneplug":"0.1.0","zoneplug_sweep":1}}"#
    );
    for n in cells {
        text += &format!("\n{}", line(*n));
    }
    std::fs::write(&path, text + "\n").unwrap();
    path
}

fn line(n: u32) -> String {
    format!(r#"{{"cell":{{"n":{n}}},"index":{n},"key":"k{n}","result":0.30000000000000004}}"#)
}

#[test]
fn files_of_a_sweep_in_shards_are_one_file() {
    let dir = Dir::new("merge-sweep");
    let (a, b) = (sweep(&dir, 1, &[4, 0, 2]), sweep(&dir, 2, &[1, 3]));
    let mut want =
        r#"{"cells":5,"run":"m:f","shard":null,"zoneplug":"0.1.0","zoneplug_sweep":1}"#.to_owned();
    for n in 0..5 {
        want += &format!("\n{}", line(n));
    }
    assert_eq!(ok(&["merge", &b, &a]), want + "\n");
    fails(&["merge", &a, &b, "--json"], 2, "without --json");
    fails(&["merge", &a], 2, "shard 2 of 2 is missing");
    fails(&["merge", &a, &a], 2, "shard 1 of 2 is there twice");
    // A torn last line is no result.
    let whole = std::fs::read(&b).unwrap();
    std::fs::write(&b, &whole[..whole.len() - 9]).unwrap();
    fails(&["merge", &a, &b], 2, "shard 2 of 2 has results of 1 of its 2 cells");
    for wrong in [&[1, 2][..], &[1, 1], &[1, 7]] {
        fails(&["merge", &a, &sweep(&dir, 2, wrong)], 2, "line 3 is not one of this sweep");
    }
    let b = sweep(&dir, 2, &[1, 3]);
    let other = std::fs::read_to_string(&b).unwrap().replace("m:f", "m:g");
    std::fs::write(&b, other).unwrap();
    fails(&["merge", &a, &b], 2, "is of another sweep");
}
