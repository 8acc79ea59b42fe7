//! Data sets of datadings, as its version 3.4 reads them: samples as MessagePack, and five files about them.
//!
//! A sample is the map `key`, `image` (the image file's bytes), `label`. Numbers in the files next to it have the
//! most significant byte first. `.offsets` says where samples begin, `.keys` what they are called; `.key_hashes` and
//! `.filter` (a Bloom filter) find a key, and `.md5` has the sums of all of them, as `md5sum -c` checks them.
//! `crates/dataset` has the reader.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use blake2s_simd::Params;
use bothends_io::replace;
use md5::{Digest, Md5};

use crate::PackError;

/// How the name of the samples' file ends.
pub(super) const ENDING: &str = "msgpack";

/// The files about the samples, in the order of their sums.
const BESIDE: [&str; 4] = ["offsets", "keys", "key_hashes", "filter"];

/// The file of the sums.
const SUMS: &str = "md5";

/// Everything that is written for the samples at `path`.
pub(super) fn files(path: &Path) -> impl Iterator<Item = PathBuf> {
    let beside = BESIDE.into_iter().chain([SUMS]).map(|ending| beside(path, ending));
    std::iter::once(path.to_owned()).chain(beside)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{ending}"));
    name.into()
}

/// The samples' file, being written.
pub(super) struct Writer {
    file: BufWriter<File>,
    sum: Md5,
    /// Where each sample ends, after a 0.
    offsets: Vec<u64>,
    keys: Vec<String>,
    head: Vec<u8>,
}

impl Writer {
    pub(super) fn new(file: File) -> Self {
        let file = BufWriter::with_capacity(1 << 20, file);
        let (keys, head) = Default::default();
        Self { file, sum: Md5::new(), offsets: vec![0], keys, head }
    }

    /// Bytes of the samples so far.
    pub(super) fn len(&self) -> u64 {
        self.offsets.last().copied().unwrap_or(0)
    }

    /// Appends a sample; no other has this key.
    pub(super) fn write(
        &mut self,
        key: String,
        image: &[u8],
        label: u32,
    ) -> io::Result<()> {
        self.head.clear();
        self.head.push(0x83);
        text(&mut self.head, "key");
        text(&mut self.head, &key);
        text(&mut self.head, "image");
        sized(&mut self.head, [0xc4, 0xc5, 0xc6], image.len());
        let mut tail = Vec::with_capacity(16);
        text(&mut tail, "label");
        match label {
            0..=0x7f => tail.push(low(label)),
            0x80.. => {
                sized(&mut tail, [0xcc, 0xcd, 0xce], usize::try_from(label).unwrap_or(0));
            }
        }
        for part in [&self.head, image, &tail] {
            self.sum.update(part);
            self.file.write_all(part)?;
        }
        let n_bytes = self.head.len() + image.len() + tail.len();
        self.offsets.push(self.len() + n_bytes as u64);
        self.keys.push(key);
        Ok(())
    }

    /// Writes the other files, next to `path`, which is what the samples' file will be called; `written` gets the
    /// name of each that is there, also where a later one fails.
    pub(super) fn finish(
        self,
        path: &Path,
        written: &mut Vec<PathBuf>,
    ) -> Result<(), PackError> {
        let failed = |path: &Path| PackError::at("write", path);
        let file =
            self.file.into_inner().map_err(|error| failed(path)(error.into_error()))?;
        file.sync_all().map_err(failed(path))?;
        let name = |path: &Path| {
            path.file_name().unwrap_or_default().to_string_lossy().into_owned()
        };
        let mut sums = line(self.sum, &name(path));
        let offsets: Vec<u8> =
            self.offsets.iter().flat_map(|at| at.to_be_bytes()).collect();
        let contents =
            [offsets, keys(&self.keys), key_hashes(&self.keys), filter(&self.keys)];
        for (ending, bytes) in BESIDE.into_iter().zip(contents) {
            let path = beside(path, ending);
            write_whole(&path, &bytes).map_err(failed(&path))?;
            sums += &line(Md5::new_with_prefix(&bytes), &name(&path));
            written.push(path);
        }
        let path = beside(path, SUMS);
        write_whole(&path, sums.as_bytes()).map_err(failed(&path))?;
        written.push(path);
        Ok(())
    }
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, |mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
}

/// A line as `md5sum` writes it.
fn line(sum: Md5, name: &str) -> String {
    let hex: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}  {name}\n")
}

fn text(out: &mut Vec<u8>, text: &str) {
    match text.len() {
        n @ 0..32 => out.push(0xa0 | low(n)),
        n => sized(out, [0xd9, 0xda, 0xdb], n),
    }
    out.extend_from_slice(text.as_bytes());
}

/// The shortest form of a number of 1, 2 or 4 bytes, after its kind's byte.
fn sized(out: &mut Vec<u8>, kinds: [u8; 3], n: usize) {
    let bytes = (n as u64).to_be_bytes();
    let (kind, n_bytes) = match n {
        0..=0xff => (kinds[0], 1),
        0x100..=0xffff => (kinds[1], 2),
        _ => (kinds[2], 4),
    };
    out.push(kind);
    out.extend_from_slice(&bytes[8 - n_bytes..]);
}

/// The lowest byte of a number that has no other.
fn low(n: impl TryInto<u8>) -> u8 {
    n.try_into().unwrap_or(u8::MAX)
}

/// One MessagePack array of all keys.
fn keys(keys: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    let n = (keys.len() as u64).to_be_bytes();
    match keys.len() {
        n @ 0..16 => out.push(0x90 | low(n)),
        16..=0xffff => out.extend([0xdc, n[6], n[7]]),
        _ => {
            out.push(0xdd);
            out.extend_from_slice(&n[4..]);
        }
    }
    keys.iter().for_each(|key| text(&mut out, key));
    out
}

/// A salt with which no two keys have the same hash, then the hash of each key.
fn key_hashes(keys: &[String]) -> Vec<u8> {
    for attempt in 0_u64.. {
        let salt = hash(&attempt.to_string(), &[]);
        let hashes: Vec<u64> = keys.iter().map(|key| hash8(key, &salt[..8])).collect();
        let mut sorted = hashes.clone();
        sorted.sort_unstable();
        if sorted.windows(2).all(|pair| pair[0] != pair[1]) {
            let hashes = hashes.iter().flat_map(|hash| hash.to_be_bytes());
            return salt[..8].iter().copied().chain(hashes).collect();
        }
    }
    unreachable!("keys differ, and so do their hashes with some salt")
}

fn hash(text: &str, salt: &[u8]) -> [u8; 32] {
    *Params::new().salt(salt).hash(text.as_bytes()).as_array()
}

fn hash8(text: &str, salt: &[u8]) -> u64 {
    first_u64(&hash(text, salt))
}

fn first_u64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// A Bloom filter (simplebloom) in which one of as many other keys as there are is found by mistake.
fn filter(keys: &[String]) -> Vec<u8> {
    let n = keys.len().max(2) as u64;
    let chance = 1.0 / n as f64;
    let (n_bits, n_hashes) = filter_size(n, chance);
    let mut bits = vec![0_u8; usize::try_from(n_bits / 8).unwrap_or(usize::MAX)];
    for key in keys {
        let digest = hash(key, &[]);
        let (first, step) = (first_u64(&digest), first_u64(&digest[8..]));
        for nth in 0..n_hashes {
            let bit = first.wrapping_add(nth.wrapping_mul(step)) % n_bits;
            bits[usize::try_from(bit / 8).unwrap_or(0)] |= 1 << (bit % 8);
        }
    }
    let mut out = b"SIMPBLOO".to_vec();
    out.extend((32 + n_bits / 8).to_be_bytes());
    out.extend(n.to_be_bytes());
    out.extend(chance.to_be_bytes());
    out.extend(bits);
    out
}

/// Bits of a filter for `n` keys, and how many of them a key sets.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most 64 bits for each key, and positive"
)]
fn filter_size(n: u64, chance: f64) -> (u64, u64) {
    // The square of ln 2, with the minus sign.
    let bits = n as f64 * chance.ln() / -0.480_453_013_918_201_5;
    let n_bits = (bits / 8.0).ceil() as u64 * 8;
    let per_key = n_bits as f64 / n as f64;
    (n_bits, (per_key * std::f64::consts::LN_2).round_ties_even() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What datadings 3.4.7 writes for these samples.
    #[test]
    fn the_files_are_those_of_datadings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.msgpack");
        let mut writer = Writer::new(File::create(&path).unwrap());
        writer.write("a".to_owned(), &[1, 2, 3], 0).unwrap();
        writer.write("b".to_owned(), &[], 7).unwrap();
        writer.write("cat/n01.JPEG".to_owned(), &[0; 300], 1000).unwrap();
        assert_eq!(writer.len(), 383);
        writer.finish(&path, &mut Vec::new()).unwrap();
        let hex = |ending: &str| {
            let bytes = std::fs::read(beside(&path, ending)).unwrap();
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let offsets = [0_u64, 25, 47, 383].map(|at| format!("{at:016x}")).concat();
        assert_eq!(hex("offsets"), offsets);
        assert_eq!(hex("keys"), "93a161a162ac6361742f6e30312e4a504547");
        assert_eq!(
            hex("key_hashes"),
            "652e530edee5893b953ffc3d1368ba7472f9046833a27982c8f7eb09a1fc8330"
        );
        assert_eq!(
            hex("filter"),
            "53494d50424c4f4f000000000000002100000000000000033fd5555555555555cc"
        );
        let sums = std::fs::read_to_string(beside(&path, "md5")).unwrap();
        let first = "6c5b3f92bccff2db2016049db145f3f7  tiny.msgpack\n";
        assert!(sums.starts_with(first), "{sums}");
        assert_eq!(sums.lines().count(), 5);
        assert_eq!(filter_size(20_000, 1.0 / 20_000.0), (412_264, 14));
        assert_eq!(keys(&[]), [0x90]);
    }

    #[test]
    fn numbers_take_their_shortest_form() {
        let forms = [(31, 1), (32, 2), (255, 2), (256, 3), (65535, 3), (65536, 5)];
        for (n, head) in forms {
            let mut out = Vec::new();
            text(&mut out, &"x".repeat(n));
            assert_eq!(out.len(), n + head, "{n}");
        }
        let names: Vec<String> = (0..70_000).map(|n| n.to_string()).collect();
        assert_eq!(keys(&names[..15])[0], 0x9f);
        assert_eq!(keys(&names[..16])[..3], [0xdc, 0, 16]);
        assert_eq!(keys(&names)[..5], [0xdd, 0, 1, 0x11, 0x70]);
        assert_eq!(key_hashes(&names).len(), 8 + 8 * names.len());
    }
}
