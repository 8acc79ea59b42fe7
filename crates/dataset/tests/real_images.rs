//! The extent table over real names and lengths: those in two archives of images that
//! `BOTHENDS_TEST_DATA` may point to.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests, and visible skips")]

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use bothends_core::ids::SampleId;
use bothends_dataset::conformance::{MemoryStorage, check};
use bothends_dataset::find;

/// The regular files of a tar archive (POSIX.1-1988, ustar): name and length.
fn members(archive: &Path) -> Vec<(String, u64)> {
    let mut archive = io::BufReader::new(File::open(archive).unwrap());
    let mut members = Vec::new();
    let mut header = [0; 512];
    while archive.read_exact(&mut header).is_ok() && header[0] != 0 {
        let text = |range: std::ops::Range<usize>| {
            let field = header[range].split(|&byte| byte == 0).next().unwrap();
            String::from_utf8(field.to_vec()).unwrap()
        };
        let len = u64::from_str_radix(text(124..136).trim(), 8).unwrap();
        if header[156] == b'0' {
            members.push((text(0..100), len));
        }
        let skip = len.next_multiple_of(512).try_into().unwrap();
        archive.seek(SeekFrom::Current(skip)).unwrap();
    }
    members
}

/// Finds the images as class folders in `below` and compares with names sorted here.
fn class_folders(archive: &str, below: &str, n_samples: usize, n_classes: usize) {
    let Some(folder) = std::env::var_os("BOTHENDS_TEST_DATA") else {
        println!("skipped: BOTHENDS_TEST_DATA is not set");
        return;
    };
    let members = members(&Path::new(&folder).join(archive));
    let mut storage = MemoryStorage::new();
    let mut expected = Vec::new();
    for (name, len) in members.iter().filter(|member| member.0.starts_with(below)) {
        storage = storage.with(name, &vec![0; usize::try_from(*len).unwrap()]);
        let (folder, leaf) = name.rsplit_once('/').unwrap();
        expected.push((folder.to_owned(), leaf.to_owned(), *len));
    }
    expected.sort();
    let mut classes: Vec<_> = expected.iter().map(|row| row.0.clone()).collect();
    classes.dedup();

    let found = find(&storage, below.trim_end_matches('/')).unwrap();
    check(&storage, &found);
    let table = &found.table;
    assert_eq!((expected.len(), classes.len()), (n_samples, n_classes));
    assert_eq!(table.n_samples(), n_samples as u64);
    assert_eq!(table.class_names().len(), n_classes);
    for (id, (folder, leaf, len)) in (0..).map(SampleId).zip(&expected) {
        let extent = table.extent(id);
        assert_eq!(table.file_path(extent.file), format!("{folder}/{leaf}"));
        assert_eq!((extent.offset, u64::from(extent.len)), (0, *len));
        let label = usize::try_from(table.label(id).0).unwrap();
        assert_eq!(classes[label], *folder);
    }
    let bytes = table.memory_bytes() as f64 / n_samples as f64;
    println!("{archive}: {bytes:.1} bytes of memory per sample");
}

#[test]
fn five_hundred_photographs_in_class_folders() {
    class_folders("imagenet-500.tar", "imagenet-500/", 500, 500);
}

#[test]
fn fifty_thousand_small_images_in_class_folders() {
    class_folders("cifar10.tar", "train/", 50_000, 10);
}
