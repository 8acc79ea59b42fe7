//! The manifest of a store: which shards it has, in which order, and what their samples are.
//!
//! One spelling is hashed (keys sorted, no spaces) whatever the file looks like. What is hashed is
//! generated again from what was parsed, so nothing is accepted that was not hashed. Read `header.rs`
//! next.

use bothends_core::sample::Encoding;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::{Header, Refusal, VERSION};
use crate::path;

const FORMAT: &str = "bothends store";

/// What a store is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// What every sample is.
    pub encoding: Encoding,
    /// The classes' names by label; none where labels have no names.
    pub classes: Vec<String>,
    /// The shards in the order of their samples.
    pub shards: Vec<Shard>,
}

/// What the manifest says of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// Its name: its files lie in the store's folder.
    pub name: String,
    /// Its length.
    pub len_bytes: u64,
    /// How many of its records are samples.
    pub n_samples: u32,
    /// XXH3-64 of its index.
    pub index_checksum: u64,
}

impl Shard {
    /// The shard of that name and header, with `n_samples` samples among its records.
    #[must_use]
    pub fn new(name: &str, header: &Header, n_samples: u32) -> Self {
        Self {
            name: name.to_owned(),
            len_bytes: header.index_range().end,
            n_samples,
            index_checksum: header.index_checksum(),
        }
    }

    /// The file of its records and its index.
    #[must_use]
    pub fn file(&self) -> String {
        format!("{}.shard", self.name)
    }

    /// The file of its index's copy.
    #[must_use]
    pub fn index_file(&self) -> String {
        format!("{}.index", self.name)
    }

    /// Whether that is the shard's header.
    #[must_use]
    pub fn has(&self, header: &Header) -> bool {
        *self == Self::new(&self.name, header, self.n_samples)
    }
}

impl Manifest {
    /// How many samples the store has; `None` beyond 2^64.
    #[must_use]
    pub fn n_samples(&self) -> Option<u64> {
        self.shards
            .iter()
            .try_fold(0_u64, |sum, shard| sum.checked_add(u64::from(shard.n_samples)))
    }

    /// The manifest's bytes, the same for the file and its copy.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = Text {
            classes: self.classes.clone(),
            encoding: self.encoding,
            features: Vec::new(),
            format: FORMAT.to_owned(),
            hash: None,
            samples: self.n_samples().unwrap_or(u64::MAX),
            shards: self.shards.iter().map(ShardText::from).collect(),
            version: u64::from(VERSION),
        };
        text.hash = Some(text.hash());
        text.file()
    }

    /// Reads a manifest from untrusted bytes.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Refusal> {
        let broken = |e| {
            Refusal::damaged(format_args!(
                "not a store's manifest ({e}); rename it if it is something else"
            ))
        };
        let kin: Kin = serde_json::from_slice(bytes).map_err(broken)?;
        if kin.format != FORMAT {
            return Err(Refusal::damaged(
                "not a store's manifest (a different format); rename it if it is something else",
            ));
        }
        if kin.version != u64::from(VERSION) {
            return Err(Refusal::Version(kin.version));
        }
        if let Some(feature) = kin.features.first() {
            return Err(Refusal::Feature(format!("the feature `{feature}`")));
        }
        let mut text: Text = serde_json::from_slice(bytes).map_err(broken)?;
        let (said, hash) = (text.hash.take(), text.hash());
        let manifest = Self {
            encoding: text.encoding,
            shards: text.shards.iter().map(Shard::try_from).collect::<Result<_, _>>()?,
            classes: text.classes,
        };
        if manifest.n_samples() != Some(text.samples) {
            return Err(Refusal::damaged(
                "its shards have a different number of samples",
            ));
        }
        if said.as_ref() != Some(&hash) {
            return Err(Refusal::damaged("the manifest has a different hash"));
        }
        Ok(manifest)
    }
}

/// What every version of a manifest says.
#[derive(Deserialize)]
struct Kin {
    format: String,
    version: u64,
    features: Vec<String>,
}

/// The manifest as JSON; its fields are sorted, as they are hashed.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    classes: Vec<String>,
    encoding: Encoding,
    features: Vec<String>,
    format: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    samples: u64,
    shards: Vec<ShardText>,
    version: u64,
}

impl Text {
    /// As it stands in the file: for people, too.
    fn file(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("names and numbers");
        bytes.push(b'\n');
        bytes
    }

    fn hash(&self) -> String {
        debug_assert!(self.hash.is_none(), "the hash is of the rest");
        hex(XxHash3_64::oneshot(&serde_json::to_vec(self).expect("names and numbers")))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShardText {
    bytes: u64,
    index_checksum: String,
    name: String,
    samples: u32,
}

impl From<&Shard> for ShardText {
    fn from(shard: &Shard) -> Self {
        Self {
            bytes: shard.len_bytes,
            index_checksum: hex(shard.index_checksum),
            name: shard.name.clone(),
            samples: shard.n_samples,
        }
    }
}

impl TryFrom<&ShardText> for Shard {
    type Error = Refusal;

    fn try_from(text: &ShardText) -> Result<Self, Refusal> {
        let refuse =
            |what| Refusal::damaged(format_args!("the shard {:?} {what}", text.name));
        path::check(&text.name).map_err(refuse)?;
        if text.name.contains('/') {
            return Err(refuse("is not in the store's folder"));
        }
        let index_checksum = u64::from_str_radix(&text.index_checksum, 16)
            .ok()
            .filter(|&checksum| hex(checksum) == text.index_checksum)
            .ok_or_else(|| refuse("has a checksum that is not 16 hex digits"))?;
        Ok(Self {
            name: text.name.clone(),
            len_bytes: text.bytes,
            n_samples: text.samples,
            index_checksum,
        })
    }
}

fn hex(checksum: u64) -> String {
    format!("{checksum:016x}")
}
