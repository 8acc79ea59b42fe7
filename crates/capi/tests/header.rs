//! The header that is checked in is what cbindgen makes of the code, and names every option.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

/// The header as the code is now. The order of the files is the order in the header.
fn made() -> String {
    let capi = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(capi.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in
        ["status", "memory", "loader", "epoch", "batch", "column", "field", "device"]
    {
        builder = builder.with_src(capi.join("src").join(file).with_extension("rs"));
    }
    let mut bytes = Vec::new();
    builder.generate().unwrap().write(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_header_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/bothends.h");
    let (made, there) = (made(), fs::read_to_string(&path).unwrap_or_default());
    if made != there {
        let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bothends.h");
        fs::write(&new, made).unwrap();
        panic!(
            "{} is out of date; if the code is right: cp {} {}",
            path.display(),
            new.display(),
            path.display()
        );
    }
}

#[test]
fn the_header_names_every_option() {
    let header = made();
    let table = include_str!("../../runtime/src/config/options.rs").lines();
    let rows = table.filter_map(|line| line.strip_prefix("//! | `"));
    let names = rows.filter_map(|row| row.split(" | ").next());
    let names = names.flat_map(|names| names.split(", "));
    let names: Vec<_> =
        names.map(|name| format!("`{}`", name.trim_matches('`'))).collect();
    assert!(names.len() > 20, "{names:?}");
    let missing: Vec<_> = names.iter().filter(|name| !header.contains(*name)).collect();
    assert!(missing.is_empty(), "be_loader_open's text lacks {missing:?}");
}
