//! Every entry over the folders of bad files, whole, cut short and with bytes changed.

use std::path::Path;

/// What a file is tried as.
type Entry = fn(&[u8]);

#[test]
fn wire() {
    replay("wire", bothends_fuzz::wire);
}

#[test]
fn nvme() {
    replay("nvme", bothends_fuzz::nvme);
}

#[test]
fn recipe() {
    replay("recipe", bothends_fuzz::recipe);
}

#[test]
fn events() {
    replay("events", bothends_fuzz::events);
    // A good one, whose title is a figure's name for none.
    let begin = r#"{"line":"header","format":1,"version":"0.1.0","title":"NaN, a run","note":"","#;
    let rest =
        r#""generated_images":false,"machine":"","command":"","date":"","config":{}}"#;
    bothends_fuzz::events(format!("{begin}{rest}\n").as_bytes());
}

#[test]
fn manifest() {
    replay("dataset", bothends_fuzz::manifest);
}

#[test]
fn jpeg() {
    replay("jpeg", bothends_fuzz::jpeg);
}

#[test]
fn image() {
    replay("image", bothends_fuzz::image);
}

#[test]
fn store() {
    replay("store", bothends_fuzz::store);
}

#[test]
fn rebuild() {
    replay("jpeg", bothends_fuzz::rebuild);
    for name in ["optimised.jpg", "restart-blocks.jpg", "cmyk-17x33.jpg", "444-q100.jpg"]
    {
        let fixtures =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/ops");
        vary(&std::fs::read(fixtures.join(name)).unwrap(), bothends_fuzz::rebuild);
    }
}

#[test]
fn row_groups() {
    // Bytes of good blocks after the three that choose the image: what comes out of a packer
    // is tried by `ops`, here it is what is near it.
    for kind in 0..=255 {
        let mut block = vec![kind, kind, kind ^ 0x5a, 60, 0, 60, 0];
        block.extend([0x10, 0x10, 0x22, 0b101, 0b1101].repeat(40));
        vary(&block, bothends_fuzz::row_groups);
    }
}

#[test]
fn pickle() {
    replay("pickle", bothends_fuzz::pickle);
}

#[test]
fn block_cache() {
    replay("block_cache", bothends_fuzz::block_cache);
}

#[test]
fn side_index() {
    replay("side_index", bothends_fuzz::side_index);
}

#[test]
fn state() {
    replay("state", bothends_fuzz::state);
}

#[test]
fn list() {
    replay("dataset", bothends_fuzz::list);
}

#[test]
fn shards() {
    replay("shards", bothends_fuzz::shards);
}

#[test]
fn compressed() {
    replay("compressed", bothends_fuzz::compressed);
}

#[test]
fn preset() {
    replay("preset", bothends_fuzz::preset);
}

#[test]
fn notice() {
    replay("notice", bothends_fuzz::notice);
}

#[test]
fn keys() {
    replay("keys", bothends_fuzz::keys);
}

#[test]
fn serving() {
    replay("serving", bothends_fuzz::serving);
}

#[test]
fn remote() {
    replay("remote", bothends_fuzz::remote);
}

#[test]
fn answers() {
    replay("answers", bothends_fuzz::answers);
}

#[test]
fn loader() {
    replay("loader", bothends_fuzz::loader);
}

#[test]
fn capi() {
    replay("capi", bothends_fuzz::capi);
}

fn replay(folder: &str, entry: Entry) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/bad").join(folder);
    let mut n_files = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        // The name of the file that broke a rule, for the failed test's output.
        println!("{}", path.display());
        vary(&std::fs::read(path).unwrap(), entry);
        n_files += 1;
    }
    assert!(n_files > 10, "{} has {n_files} files", folder.display());
}

/// The bytes themselves, 16 beginnings of them, and 64 copies with one byte changed.
fn vary(bytes: &[u8], entry: Entry) {
    entry(bytes);
    for part in 0..16 {
        entry(&bytes[..bytes.len() * part / 16]);
    }
    let mut changed = bytes.to_vec();
    for round in 0..64 {
        let Some(at) = (round * 97_usize).checked_rem(bytes.len()) else { return };
        changed[at] ^= 1 << (round % 8);
        entry(&changed);
        changed[at] = bytes[at];
    }
}
