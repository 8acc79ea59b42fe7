//! The archive of real images that `BOTHENDS_TEST_DATA` may point to.

use std::path::Path;

/// The bytes of imagenet-500.tar; says so where there are none.
#[allow(clippy::print_stdout, reason = "whoever runs tests is told what was skipped")]
pub(crate) fn real_images() -> Option<Vec<u8>> {
    let Some(folder) = std::env::var_os("BOTHENDS_TEST_DATA") else {
        println!("skipped: BOTHENDS_TEST_DATA names no folder with imagenet-500.tar");
        return None;
    };
    Some(std::fs::read(Path::new(&folder).join("imagenet-500.tar")).unwrap())
}

/// Names and contents of the regular files in an (ustar) archive.
pub(crate) fn files(tar: &[u8]) -> Vec<(String, &[u8])> {
    let text = |field: &[u8]| {
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
        String::from_utf8(field[..end].to_vec()).unwrap()
    };
    let mut files = Vec::new();
    let mut at = 0;
    while tar.len() - at >= 512 && tar[at] != 0 {
        let header = &tar[at..at + 512];
        let len = usize::from_str_radix(text(&header[124..136]).trim(), 8).unwrap();
        if matches!(header[156], b'0' | 0) {
            files.push((text(&header[..100]), &tar[at + 512..][..len]));
        }
        at += 512 + len.next_multiple_of(512);
    }
    files
}
