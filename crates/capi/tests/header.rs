//! `include/zoneplug.h` says what the library offers.

#![allow(clippy::unwrap_used)]

use std::path::Path;

/// With `ZONEPLUG_UPDATE_HEADER=1` the header is written anew.
#[test]
fn the_header_is_the_one_of_this_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    let files = [
        "boundary", "types", "disk", "files", "events", "blocking", "log", "crash", "serve",
        "queue", "memory",
    ];
    for file in files {
        builder = builder.with_src(root.join("src").join(file).with_extension("rs"));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = root.join("include/zoneplug.h");
    if std::env::var_os("ZONEPLUG_UPDATE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    let differs = made.lines().zip(kept.lines()).find(|(a, b)| a != b);
    assert_eq!(differs, None, "ZONEPLUG_UPDATE_HEADER=1 cargo test -p zoneplug-capi --test header");
    assert_eq!(made.len(), kept.len());
}
