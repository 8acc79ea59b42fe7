//! Converts a record's original bytes to their form in the store, and back.
//!
//! A JPEG is kept as blocks of coefficients if what will be written has just been converted back to
//! its exact bytes; anything else is kept as it is. This module does not read or write files and has
//! no codec: `ops` has both directions.

use bothends_core::blocks::{Blocks, Head, Profile};
use bothends_core::sample::Encoding;
use bothends_dataset::store::{Index, RecordKind};
use bothends_ops::jpeg::rebuild::put_together;
use bothends_ops::jpeg::{self, Coefficients, Exact, ExactPacker};
use bothends_ops::kernels::Level;

use crate::record::{Item, Made};

/// One worker's memory for making records.
#[derive(Debug)]
pub struct Converter {
    level: Level,
    packer: ExactPacker,
    coefficients: Coefficients,
}

impl Default for Converter {
    fn default() -> Self {
        let level = Level::of_process();
        let packer = ExactPacker::new(level);
        Self { level, packer, coefficients: Coefficients::default() }
    }
}

/// A record of a store, with its line of the index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept<'a> {
    pub(crate) kind: RecordKind,
    pub(crate) stored: &'a [u8],
    pub(crate) head: &'a [u8],
    pub(crate) profile: &'a [u8],
}

impl<'a> Kept<'a> {
    /// Record `number` of a shard with this index.
    pub(crate) fn of(index: &Index<'a>, number: usize, stored: &'a [u8]) -> Self {
        Self {
            kind: index.lines()[number].kind,
            stored,
            head: index.head(number),
            profile: index.profile(number),
        }
    }
}

impl Converter {
    /// The record of a sample's original bytes.
    #[must_use]
    pub fn convert(&mut self, item: Item, bytes: Vec<u8>, encoding: Encoding) -> Made {
        let blocks = match encoding {
            Encoding::Image => self.blocks(&item, &bytes),
            Encoding::Planar { .. } | Encoding::Opaque => None,
        };
        blocks.unwrap_or_else(|| Made::bytes(item, bytes))
    }

    /// The record of blocks of a JPEG; `None` if none can be converted back to `file`.
    fn blocks(&mut self, item: &Item, file: &[u8]) -> Option<Made> {
        let Exact { profile, head, groups } = self.packer.pack(file)?;
        let mut stored = groups;
        stored.extend_from_slice(self.packer.remainder());
        Some(Made {
            item: item.clone(),
            kind: RecordKind::Blocks,
            stored,
            metadata: String::new(),
            head,
            profile,
        })
    }

    /// Writes the original bytes of a record to `out`, replacing its contents.
    pub(crate) fn restore(
        &mut self,
        kept: Kept<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        if kept.kind != RecordKind::Blocks {
            out.clear();
            out.extend_from_slice(kept.stored);
            return Ok(());
        }
        let broken = || "its head does not fit its profile".to_owned();
        let head = Head::read(kept.head).ok_or_else(broken)?;
        let profile = Profile::read(kept.profile).ok_or_else(broken)?;
        let blocks = Blocks::new(profile, head).ok_or_else(broken)?;
        let n_bytes = usize::try_from(head.bytes_of(0..head.n_groups()).end);
        let (groups, remainder) = n_bytes
            .ok()
            .and_then(|n_bytes| kept.stored.split_at_checked(n_bytes))
            .ok_or_else(broken)?;
        jpeg::Stored::new(blocks, 0, groups)
            .and_then(|stored| jpeg::unpack(self.level, &stored, &mut self.coefficients))
            .and_then(|()| put_together(self.level, &self.coefficients, remainder, out))
            .map_err(|fault| fault.to_string())
    }
}
