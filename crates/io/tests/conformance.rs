//! The contract over both readers, direct and through the page cache, on disk and in
//! memory (tmpfs). What a machine lacks is skipped in print.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests, and visible skips")]

use std::path::Path;

use bothends_io::conformance::{Subject, all};
use bothends_io::{Direct, ReaderConfig, ReaderKind, open_reader};

fn everywhere(kind: ReaderKind) {
    // The build folder lies on a disk, /dev/shm in memory.
    for home in [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"] {
        if !Path::new(home).is_dir() {
            println!("skipped: no folder {home}");
            continue;
        }
        for direct in [Direct::Auto, Direct::Off] {
            let folder = tempfile::tempdir_in(home).unwrap();
            println!("{kind:?}, {direct:?}, {}", folder.path().display());
            all(&Subject { kind, direct, folder: folder.path().to_owned() });
        }
    }
}

#[test]
fn pread_keeps_the_contract() {
    everywhere(ReaderKind::Pread);
}

#[test]
fn uring_keeps_the_contract() {
    let config = ReaderConfig { kind: ReaderKind::Uring, ..ReaderConfig::default() };
    match open_reader(&config) {
        Ok(_) => everywhere(ReaderKind::Uring),
        Err(error) => println!("skipped: {error}"),
    }
}

#[test]
fn auto_opens_one_of_them() {
    let reader = open_reader(&ReaderConfig::default()).unwrap();
    println!("{}: {:?}", reader.name(), reader.note());
    assert!(reader.name() == "uring" || reader.note().unwrap().contains("io_uring"));
}

#[test]
fn settings_out_of_range_are_named() {
    let good = ReaderConfig::default();
    let bad = [
        (ReaderConfig { depth: 0, ..good }, "`depth` is 0; it must be from 1 to 4096"),
        (ReaderConfig { depth: 5000, ..good }, "`depth` is 5000"),
        (ReaderConfig { n_buffers: 0, ..good }, "`n_buffers` is 0"),
        (ReaderConfig { buffer_bytes: 0, ..good }, "`buffer_bytes` is 0"),
        (ReaderConfig { max_record_bytes: 0, ..good }, "`max_record_bytes` is 0"),
    ];
    for (config, expected) in bad {
        let error = open_reader(&config).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
