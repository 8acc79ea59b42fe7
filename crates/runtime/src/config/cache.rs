//! How large the block cache may be: what the user says, and what becomes of it on this machine.
//!
//! Decides, and asks nobody: `read/blocks.rs` looks at the disk.
//!
//! What the cache saves is decoding, not reading: with the side index, a crop of a photograph takes twice
//! the CPU time that it takes from blocks. It fills only while the host has time to spare, and a
//! host that has can do without it; it pays for later epochs that are paced otherwise, for other runs
//! over the same data, and for whoever else needs the processors. For data on a disk of this machine that
//! is no reason to take the room of the data once more, unasked. For data on another machine it is
//! one: from blocks on a local disk, an epoch reads nothing over the network.

use std::str::FromStr;

use bothends_io::Medium;

/// The most bytes of blocks that may be kept, of all data sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheSize {
    /// What there is is read. It grows, up to 64 GiB, only for data on other machines that fit in
    /// whole, on a disk of this machine with twice the room.
    Auto,
    /// Neither read nor written.
    Off,
    /// So many bytes; nothing is written where the disk has not twice the room for it.
    Bytes(u64),
}

/// The most bytes that are taken unasked: 45 GB of JPEGs.
pub(crate) const MOST_UNASKED: u64 = 64 << 30;

/// Bytes of blocks for each 100 of JPEGs: 134 for photographs, and more of small images.
const BLOCKS_PERCENT: u64 = 145;

/// The least that is of use.
const LEAST_BYTES: u64 = 1 << 20;

impl CacheSize {
    /// The most bytes; `None` where there is to be no cache.
    pub(crate) fn limit_bytes(self) -> Option<u64> {
        match self {
            Self::Off => None,
            Self::Auto => Some(MOST_UNASKED),
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

/// A number of bytes, alone or with K, M, G or T.
pub(crate) fn bytes_of(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, unit)) if !unit.is_ascii_digit() => (&text[..at], Some(unit)),
        _ => (text, None),
    };
    let shift = match unit {
        None => 0,
        Some('K' | 'k') => 10,
        Some('M' | 'm') => 20,
        Some('G' | 'g') => 30,
        Some('T' | 't') => 40,
        Some(_) => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => return Ok(Self::Auto),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        match bytes_of(text) {
            Some(bytes) if bytes >= LEAST_BYTES => Ok(Self::Bytes(bytes)),
            _ => Err(format!(
                "`{text}` is not a size of a cache; use auto, off, or at least 1M in bytes, or \
                 with K, M, G or T, such as 50G"
            )),
        }
    }
}

/// What is known where it is decided whether the cache grows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    /// Bytes of the data set.
    pub(crate) data_bytes: u64,
    /// Bytes of its blocks that there are.
    pub(crate) kept_bytes: u64,
    /// What the data are on, and what the cache is on; `None` where the kernel does not say.
    pub(crate) data_on: Option<Medium>,
    pub(crate) cache_on: Option<Medium>,
    /// Bytes that may still be written there.
    pub(crate) free_bytes: u64,
}

/// Whether the cache grows.
///
/// # Errors
/// Why it does not, in one line.
pub(crate) fn grows(size: CacheSize, facts: &Facts) -> Result<(), String> {
    let all_bytes =
        (facts.data_bytes / 100).saturating_mul(BLOCKS_PERCENT).max(LEAST_BYTES);
    let limit_bytes = match size {
        CacheSize::Off => return Err("it is off".to_owned()),
        CacheSize::Bytes(bytes) => bytes,
        CacheSize::Auto => {
            unasked(all_bytes, facts)?;
            MOST_UNASKED
        }
    };
    let more_bytes = all_bytes.min(limit_bytes).saturating_sub(facts.kept_bytes);
    if facts.free_bytes / 2 < more_bytes {
        return Err(format!(
            "the disk has {} MiB left, and twice the {} MiB that would be written is asked for",
            facts.free_bytes >> 20,
            more_bytes >> 20
        ));
    }
    Ok(())
}

/// Whether it may grow though nobody has given a size.
fn unasked(all_bytes: u64, facts: &Facts) -> Result<(), String> {
    if facts.data_on != Some(Medium::Network) {
        return Err(
            "the data are on this machine; it grows if a size is given".to_owned()
        );
    }
    if facts.cache_on != Some(Medium::Disk) {
        return Err("the cache directory is not on a disk of this machine".to_owned());
    }
    if all_bytes > MOST_UNASKED {
        return Err(format!(
            "all of the data would take {} GiB, more than {} unasked; give a size",
            all_bytes.div_ceil(1 << 30),
            MOST_UNASKED >> 30
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMOTE: Facts = Facts {
        data_bytes: 10 << 30,
        kept_bytes: 0,
        data_on: Some(Medium::Network),
        cache_on: Some(Medium::Disk),
        free_bytes: 100 << 30,
    };

    #[test]
    fn sizes_are_words_or_bytes() {
        let parse = |text: &str| text.parse::<CacheSize>();
        assert_eq!(parse("auto"), Ok(CacheSize::Auto));
        assert_eq!(parse("off"), Ok(CacheSize::Off));
        assert_eq!(parse("50G"), Ok(CacheSize::Bytes(50 << 30)));
        assert_eq!(parse("1048576"), Ok(CacheSize::Bytes(1 << 20)));
        for wrong in ["", "G", "1", "-5G", "5GiB", "99999999999T", "5é", "on"] {
            let why = parse(wrong).unwrap_err();
            assert!(why.contains("such as 50G"), "{why}");
        }
    }

    #[test]
    fn unasked_it_grows_for_remote_data_that_fit_and_nothing_else() {
        let auto = |facts: &Facts| grows(CacheSize::Auto, facts);
        assert_eq!(auto(&REMOTE), Ok(()));
        for (facts, said) in [
            (Facts { data_on: Some(Medium::Disk), ..REMOTE }, "on this machine"),
            (Facts { data_on: None, ..REMOTE }, "on this machine"),
            (Facts { cache_on: Some(Medium::Network), ..REMOTE }, "cache directory"),
            (Facts { cache_on: Some(Medium::Memory), ..REMOTE }, "cache directory"),
            (Facts { data_bytes: 200 << 30, ..REMOTE }, "give a size"),
            (Facts { free_bytes: 20 << 30, ..REMOTE }, "20480 MiB left"),
        ] {
            let why = auto(&facts).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }

    #[test]
    fn a_given_size_needs_twice_its_room_and_no_more_than_the_data_take() {
        let local = Facts { data_on: Some(Medium::Disk), ..REMOTE };
        let given = |gib: u64, facts: &Facts| grows(CacheSize::Bytes(gib << 30), facts);
        assert_eq!(given(50, &local), Ok(()));
        assert_eq!(given(1000, &local), Ok(()), "the data take 14.5");
        let tight = Facts { free_bytes: 25 << 30, ..local };
        assert!(given(50, &tight).is_err());
        assert_eq!(given(12, &tight), Ok(()));
        assert_eq!(given(50, &Facts { kept_bytes: 5 << 30, ..tight }), Ok(()));
        assert!(grows(CacheSize::Off, &REMOTE).is_err());
    }
}
