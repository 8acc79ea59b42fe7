//! What `bothends pack` writes is what `docs/store-format.md` says: a reader written from that
//! page alone, in Python and NumPy, gets every file and every pixel back, and notices damage.
//!
//! The reader is `tests/store_reader.py`; it compares pixels with Pillow's. Without its
//! packages, which `scripts/check` installs into `.venv`, a skip is printed.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stderr, reason = "skips must be seen")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_tests::cifar_batches;
use bothends_tests::programs::{program, run};

const PATIENCE: Duration = Duration::from_secs(120);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A Python with the reader's packages; nothing is installed here.
fn python(test: &str) -> Option<PathBuf> {
    let has_packages = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", "import numpy, PIL, xxhash"]);
        run(&mut command, PATIENCE).is_ok_and(|output| output.status.success())
    };
    let found = [root().join(".venv/bin/python"), "python3".into()]
        .into_iter()
        .find(has_packages);
    if found.is_none() {
        eprintln!("skipped: {test} (no Python with NumPy, Pillow and xxhash)");
    }
    found
}

fn read(python: &Path, store: &Path, more: &[&str]) -> Result<Output> {
    let mut command = Command::new(python);
    command.arg(root().join("tests/store_reader.py")).arg(store).args(more);
    run(&mut command, PATIENCE)
}

/// What packing printed first: numbers of shards and of records of each kind.
fn pack(data: &Path, store: &Path) -> Result<Vec<usize>> {
    let mut command = Command::new(program("bothends")?);
    command.args(["pack", "--shard-bytes", "200000"]).args([data, store]);
    let output = run(&mut command, PATIENCE)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let words = String::from_utf8(output.stdout)?;
    Ok(numbers(words.lines().next().context("a line")?))
}

fn numbers(line: &str) -> Vec<usize> {
    line.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

/// The golden images in class folders, with what else lies in such folders; in a class of
/// its own each JPEG once more with steps so large that the inverse DCT overflows.
fn images(folder: &Path) -> Result<()> {
    for class in ["jpeg/below", "png", "steep", "png/empty"] {
        fs::create_dir_all(folder.join(class))?;
    }
    for entry in fs::read_dir(root().join("tests/fixtures/ops"))? {
        let path = entry?.path();
        let name = path.file_name().context("a name")?;
        let mut bytes = fs::read(&path)?;
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("png") => fs::write(folder.join("png").join(name), bytes)?,
            Some("jpg") => {
                fs::write(folder.join("jpeg/below").join(name), &bytes)?;
                // Marker, length and number of the first table, then its 64 steps.
                let at = bytes.windows(4).position(|w| w == [0xff, 0xdb, 0, 67]);
                if let Some(at) = at {
                    bytes[at + 5..at + 69].fill(255);
                    fs::write(folder.join("steep").join(name), bytes)?;
                }
            }
            _ => {}
        }
    }
    fs::write(folder.join("png/notes.txt"), "These are no images.\n")?;
    fs::write(folder.join("png/nothing.txt"), "")?;
    Ok(())
}

/// Packs, reads with shards and with copies alone, and returns the numbers of blocks, of
/// bytes and of records that are not samples.
fn comes_back(python: &Path, data: &Path, store: &Path) -> Result<[usize; 3]> {
    let packed = pack(data, store)?;
    let [shards, blocks, bytes, rests] = packed[..] else { panic!("{packed:?}") };
    ensure!(shards > 1, "{packed:?}");
    for more in [&["--check", data.to_str().unwrap()][..], &["--copies"]] {
        let output = read(python, store, more)?;
        let said = String::from_utf8(output.stdout)?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}{words}");
        let expected = [blocks + bytes, blocks, bytes, rests, shards];
        ensure!(numbers(&said).starts_with(&expected), "{said}{packed:?}");
    }
    Ok([blocks, bytes, rests])
}

#[test]
fn a_reader_written_from_the_document_gets_everything_back() -> Result<()> {
    let Some(python) = python("a second reader of stores") else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let [data, store] = ["images", "store"].map(|name| folder.path().join(name));
    images(&data)?;
    let [blocks, bytes, rests] = comes_back(&python, &data, &store)?;
    // A file of notes, an empty one, and an empty folder.
    ensure!(blocks > 100 && bytes > 30 && rests == 3, "{blocks} {bytes} {rests}");

    let [data, store] = ["batches", "other"].map(|name| folder.path().join(name));
    cifar_batches(&data)?;
    fs::write(data.join("readme.html"), "<p>Pixels</p>\n")?;
    let [blocks, bytes, rests] = comes_back(&python, &data, &store)?;
    // Each batch's labels, and the page about them.
    ensure!([blocks, bytes, rests] == [0, 130, 3], "{blocks} {bytes} {rests}");
    Ok(())
}

/// What `bothends convert` writes is read by datadings 3.4.7, where `scripts/golden-shards` has installed it; what
/// datadings itself writes of the same samples is compared byte for byte by the tests of `crates/pack`.
#[test]
fn datadings_reads_what_convert_writes() -> Result<()> {
    const READER: &str = "
import sys
from pathlib import Path
from datadings.reader import MsgpackReader
folder, file = Path(sys.argv[1]), Path(sys.argv[2])
images = sorted(folder.rglob('*.jpg'))
with MsgpackReader(file) as reader:
    reader.verify_data()
    samples = list(reader)
    assert len(samples) == len(images) == 7, len(samples)
    for nth, (sample, path) in enumerate(zip(samples, images)):
        key = str(path.relative_to(folder))
        assert sample['key'] == key and reader.find_index(key) == nth, key
        assert sample['image'] == path.read_bytes(), key
        assert sample['label'] == int(path.parent.name[-1]), key
    assert 'class-0/none.jpg' not in reader
";
    let python = root().join("target/golden-writers/bin/python");
    let has_packages = Command::new(&python).args(["-c", "import datadings"]).status();
    if !has_packages.is_ok_and(|status| status.success()) {
        eprintln!(
            "skipped: datadings reads what we write (scripts/golden-shards installs it)"
        );
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let (data, file) = (
        root().join("tests/fixtures/shards/folder").canonicalize()?,
        folder.path().join("train.msgpack"),
    );
    let output = run(
        Command::new(program("bothends")?).arg("convert").args([&data, &file]),
        PATIENCE,
    )?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut reader = Command::new(&python);
    let output = run(reader.args(["-c", READER]).args([&data, &file]), PATIENCE)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[test]
fn the_reader_notices_damage_and_reads_what_is_whole() -> Result<()> {
    let Some(python) = python("damage seen by a second reader") else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let (data, store) = (folder.path().join("data"), folder.path().join("store"));
    images(&data)?;
    pack(&data, &store)?;
    let flip = |name: &str, at: usize| -> Result<()> {
        let mut bytes = fs::read(store.join(name))?;
        bytes[at] ^= 1;
        Ok(fs::write(store.join(name), bytes)?)
    };
    flip("store.json", 20)?;
    flip("00000.shard", 9)?;
    flip("00001.shard", 4100)?;
    let output = read(&python, &store, &[])?;
    let said = String::from_utf8(output.stdout)?;
    let lines: Vec<&str> = said.lines().skip(1).collect();
    ensure!(output.status.code() == Some(1) && lines.len() == 3, "{said}");
    ensure!(lines[0].starts_with("damaged: store.json: "), "{said}");
    ensure!(
        lines[1] == "damaged: 00000.shard: the checksum of its header does not match",
        "{said}"
    );
    ensure!(lines[2].starts_with("damaged: 00001.shard record 0 (`"), "{said}");
    ensure!(lines[2].ends_with("`): it has a different checksum"), "{said}");
    Ok(())
}
