//! `read`, `write` and `append`: what one lays down the other takes up, across zones and processes.

use crate::*;

/// Zones that are no power of two, with less capacity than size and a short last one, behind conventional ones.
#[test]
fn read_takes_up_what_write_laid_down_across_zones_and_processes() {
    let dir = Dir::new("stream");
    let disk = dir.disk(
        "--size 10300K --zone-size 1000K --zone-capacity 900K --conv 2 --last-zone-capacity 200K",
    );
    let file = dir.path("data");
    // Three pieces: the second begins in the middle of a zone, the third comes from a file.
    let (a, b, c) = (noise(1_000_000, 1), noise(1_499_136, 2), noise(3_000_001, 3));
    let said = text(&ok_with(&["write", &disk], &a));
    assert!(
        said.starts_with("1000000 bytes written and 3520 of padding: zones 2-3, from sector 4000")
    );
    let v: Value =
        serde_json::from_slice(&ok_with(&["write", &disk, "-", "--bs", "64K", "--json"], &b))
            .unwrap();
    assert_eq!((&v["bytes"], &v["padding_bytes"]), (&1_499_136.into(), &0.into()));
    assert_eq!((&v["extents"][0]["zone"], &v["extents"][0]["sector"]), (&3.into(), &6160.into()));
    std::fs::write(&file, &c).unwrap();
    ok(&["write", &disk, &file]);
    assert_eq!(
        conditions(&disk),
        "nw nw fu fu fu fu fu fu cl em em".replace("fu fu cl", "fu cl em").trim()
    );

    let mut all = a.clone();
    all.resize(1_003_520, 0);
    all.extend(&b);
    all.extend(&c);
    let whole = ok_with(&["read", &disk], b"");
    assert_eq!(whole.len(), all.len().next_multiple_of(4096));
    assert!(whole[..all.len()] == all[..]);
    // A length cuts off the padding, whatever the block; a start begins in the middle.
    let len = all.len().to_string();
    assert!(ok_with(&["read", &disk, "--len", &len, "--bs", "64K"], b"") == all);
    assert!(ok_with(&["read", &disk, "-c", "2"], b"") == all[..2 * 900 * 1024]);
    let rest = ok_with(&["read", &disk, "-o", "6160", "--len", "1499136", "--depth", "3"], b"");
    assert!(rest == b);
    let copy = dir.path("copy");
    assert_eq!(ok(&["read", &disk, &copy, "--len", &len]), "");
    assert!(std::fs::read(&copy).unwrap() == all);

    assert_eq!(ok(&["write", &disk]), "0 bytes written\n");
    // The rest of the disk, then not a byte more.
    let left = 8 * 900 * 1024 + 200 * 1024 - all.len().next_multiple_of(4096);
    let fill = noise(left, 4);
    fails_with(&["write", &disk, "-"], &noise(left + 1, 4), 1, "no room is left for more");
    assert_eq!(conditions(&disk), "nw nw fu fu fu fu fu fu fu fu fu");
    let back = ok_with(&["read", &disk], b"");
    assert!(back[back.len() - left..] == fill[..]);
    std::fs::write(&file, b"x").unwrap();
    fails(&["write", &disk, &file], 1, "no zone has room");

    // Conventional zones take data where one says.
    ok_with(&["write", &disk, "-", "-o", "1992"], &a[..8192]);
    assert!(ok_with(&["read", &disk, "-o", "1992", "-l", "16"], b"") == a[..8192]);
    // Over what is there, only with --reset; over more than one zone's data, only with --yes.
    fails_with(&["write", &disk, "-", "-o", "4000"], &a, 2, "zone 2 takes no writes: FULL");
    std::fs::write(&file, &b).unwrap();
    fails(&["write", &disk, &file, "-o", "4000", "--reset"], 2, "--yes");
    assert!(ok_with(&["read", &disk, "-c", "1"], b"") == all[..900 * 1024]);
    ok(&["write", &disk, &file, "-o", "4000", "--reset", "--yes"]);
    assert!(ok_with(&["read", &disk, "-o", "4000", "--len", &b.len().to_string()], b"") == b);
    assert_eq!(conditions(&disk), "nw nw fu cl fu fu fu fu fu fu fu");
}

#[test]
fn a_disk_with_one_active_zone_takes_a_stream_all_the_same() {
    let dir = Dir::new("active");
    let disk = dir.disk("--zones 6 --zone-size 1M --max-open 1 --max-active 1");
    let data = noise(4_500_000, 7);
    ok_with(&["write", &disk, "-", "--bs", "128K", "--depth", "32"], &data);
    assert!(ok_with(&["read", &disk, "--len", "4500000"], b"") == data);
    let data = noise(500_000, 8);
    let said = text(&ok_with(&["append", &disk, "-", "--bs", "16K", "--depth", "32"], &data));
    assert_eq!(said.lines().count(), 31);
}

#[test]
fn a_copy_that_fails_says_how_far_it_came_and_can_be_taken_up() {
    let dir = Dir::new("fault");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    let data = noise(3 << 20, 12);
    let bad = format!("{disk},fault=write/io/zone=1");
    let args = ["write", &bad, "-", "--bs", "64K"];
    fails_with(&args, &data, 1, "(1048576 bytes were written before)");
    ok_with(&["write", &disk], &data[1 << 20..]);
    assert!(ok_with(&["read", &disk], b"") == data);
    let bad = format!("{disk},fault=read/medium/zone=2");
    fails(&["read", &bad, &dir.path("copy")], 1, "read at sector 4096");
    fails(&["reset", &format!("{disk},fault=reset/io"), "-c", "1"], 1, "zone_reset at sector 0");
}

#[test]
fn append_says_where_each_piece_landed() {
    let dir = Dir::new("append");
    let disk = dir.disk("--zones 4 --zone-size 64K --zone-capacity 48K");
    let data = noise(100_000, 5);
    let said = text(&ok_with(&["append", &disk, "-", "--bs", "20K"], &data));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[..3],
        ["zone 0 sector 0 + 40", "zone 0 sector 40 + 40", "zone 0 sector 80 + 16"]
    );
    let mut back = Vec::new();
    for l in &lines {
        let words: Vec<&str> = l.split(' ').collect();
        back.extend(ok_with(&["read", &disk, "-o", words[3], "-l", words[5]], b""));
    }
    assert!(back[..data.len()] == data[..]);
    let v: Value = serde_json::from_slice(&ok_with(
        &["append", &disk, "-", "-o", "384", "--json"],
        &data[..5000],
    ))
    .unwrap();
    assert_eq!((&v["bytes"], &v["padding_bytes"]), (&5000.into(), &3192.into()));
    assert_eq!(v["pieces"], serde_json::json!([{"zone": 3, "sector": 384, "sectors": 16}]));
    let too_much = noise(300_000, 6);
    let out = feed(&["append", &disk], &too_much);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stdout).lines().count() > 0, "what landed is said all the same");
    assert!(text(&out.stderr).contains("no room is left"));
}

/// Above po2 a conventional zone is longer than what can be written of it.
#[test]
fn a_stream_goes_on_in_the_next_zone_where_a_conventional_one_has_a_gap() {
    let dir = Dir::new("gap");
    let disk = dir.disk("--zones 8 --zone-size 3M --conv 2");
    let (file, po2) = (dir.path("data"), format!("po2@{disk}"));
    let data = noise(8 << 20, 9);
    std::fs::write(&file, &data).unwrap();
    let said = ok(&["write", &po2, "--offset", "0", &file, "-y"]);
    assert!(said.starts_with("8388608 bytes written: zones 0-2, from sector 0 to"), "{said}");
    assert!(ok_with(&["read", &po2, "--offset", "0", "--len", "8M"], b"") == data);
    assert!(ok_with(&["read", &disk, "--offset", "0", "--len", "8M"], b"") == data);
    // From the middle of a zone, and from its gap.
    ok_with(&["write", &po2, "-", "--offset", "4096"], &data[..3 << 20]);
    assert!(ok_with(&["read", &po2, "--offset", "4096", "--len", "3M"], b"") == data[..3 << 20]);
    fails(
        &["write", &po2, &file, "--offset", "6144"],
        2,
        "zone 0 takes data up to sector 6144 only",
    );
}

/// docs/operating.md: a second file behind the first one makes a longer disk, with the data of the first where they were.
#[test]
fn a_disk_grows_by_a_second_file() {
    let dir = Dir::new("copy-grow");
    let (disk, more) = (dir.path("d.zbd"), dir.path("more.zbd"));
    for file in [&disk, &more] {
        ok(&["create", file, "--size", "64M", "--zone-size", "8M"]);
    }
    let data = noise(10 << 20, 4);
    ok_with(&["write", &disk], &data);
    let grown = format!("linear@{disk}%{more}");
    assert_eq!(json(&["info", &grown, "--json"])["zones"], 16);
    assert!(ok_with(&["read", &grown], b"") == data, "the data are not where they were");
    // The write goes on behind them, over the end of the first file.
    ok_with(&["write", &grown], &noise(100 << 20, 5));
    assert_eq!(ok_with(&["read", &grown], b"")[..data.len()], data);
}
