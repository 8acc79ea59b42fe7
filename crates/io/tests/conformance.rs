//! The contract over both readers, direct and through the page cache, on disk and in
//! memory (tmpfs). What a machine lacks is skipped in print.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests, and visible skips")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bothends_io::conformance::{Subject, all};
use bothends_io::{
    Direct, IoError, OpenFile, ReadRequest, Reader, ReaderConfig, ReaderKind, open_reader,
};

type Open = fn(&ReaderConfig) -> Result<Box<dyn Reader>, IoError>;

fn everywhere(name: &str, open: Open) {
    // The build folder lies on a disk, /dev/shm in memory.
    for home in [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"] {
        if !Path::new(home).is_dir() {
            println!("skipped: no folder {home}");
            continue;
        }
        for direct in [Direct::Auto, Direct::Off] {
            let folder = tempfile::tempdir_in(home).unwrap();
            println!("{name}, {direct:?}, {}", folder.path().display());
            all(&Subject { open, direct, folder: folder.path().to_owned() });
        }
    }
}

#[test]
fn pread_keeps_the_contract() {
    everywhere("pread", |config| {
        open_reader(&ReaderConfig { kind: ReaderKind::Pread, ..*config })
    });
}

#[test]
fn uring_keeps_the_contract() {
    let open: Open =
        |config| open_reader(&ReaderConfig { kind: ReaderKind::Uring, ..*config });
    match open(&ReaderConfig::default()) {
        Ok(_) => everywhere("uring", open),
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

/// Records of a real archive, out of order, from both readers: the bytes of the file.
#[test]
fn both_readers_read_a_real_archive() {
    let Some(folder) = std::env::var_os("BOTHENDS_TEST_DATA") else {
        println!("skipped: BOTHENDS_TEST_DATA is not set");
        return;
    };
    let path = Path::new(&folder).join("imagenet-500.tar");
    let expected = std::fs::read(&path).unwrap();
    for (kind, direct) in [ReaderKind::Auto, ReaderKind::Pread]
        .into_iter()
        .flat_map(|kind| [(kind, Direct::Auto), (kind, Direct::Off)])
    {
        let config = ReaderConfig { kind, ..ReaderConfig::default() };
        let mut reader = open_reader(&config).unwrap();
        let file = Arc::new(OpenFile::open(&path, direct).unwrap());
        let mut n_done = 0;
        for n in 0..500 {
            let offset = n * 7_368_787 % (expected.len() - 110_000);
            let request = ReadRequest {
                file: Arc::clone(&file),
                offset: offset as u64,
                len: 110_000,
                tag: offset as u64,
            };
            reader.submit(request).unwrap();
            if reader.in_flight() == reader.depth() || n == 499 {
                while let Some(done) = reader.poll(Duration::from_secs(60)) {
                    let start = usize::try_from(done.tag).unwrap();
                    assert!(*done.result.unwrap() == expected[start..start + 110_000]);
                    n_done += 1;
                }
            }
        }
        assert_eq!(n_done, 500);
        println!("{} {:?}: {} bytes", reader.name(), direct, reader.bytes_read());
    }
}
