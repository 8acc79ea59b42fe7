//! Huffman codes as a file defines them: how many there are of each length, and what they mean.
//!
//! Nothing here decodes: read `entropy/lookup.rs` for what decoders make of a code.

use super::standard;
use crate::error::SampleFault;
use crate::jpeg::damaged;

/// What a table's symbols mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// The size of a difference.
    Dc,
    /// A run of zeros and the size of the coefficient behind it.
    Ac,
    /// What a progressive scan makes of it.
    Progressive,
}

/// A code as a DHT segment defines it (T.81 §B.2.4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Code {
    /// How many codes there are of each length, from 1 bit.
    pub(crate) counts: [u8; 16],
    /// What they mean, in the order of the codes.
    pub(crate) symbols: [u8; 256],
}

impl Code {
    /// Reads a code; returns it with the bytes behind it.
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, &[u8]), SampleFault> {
        let short = || damaged("a Huffman table is cut short");
        let (&counts, rest) = bytes.split_first_chunk::<16>().ok_or_else(short)?;
        let n_codes: usize = counts.iter().map(|&n| usize::from(n)).sum();
        let (own, rest) = rest.split_at_checked(n_codes).ok_or_else(short)?;
        let mut symbols = [0; 256];
        let slot = symbols.get_mut(..n_codes);
        slot.ok_or_else(|| damaged("a Huffman table of more than 256 codes"))?
            .copy_from_slice(own);
        Ok((Self { counts, symbols }, rest))
    }

    /// The symbols, shortest codes first; each with its code and the code's length (T.81
    /// Annex C). Of a code that has no room for all of them, codes come that are too long.
    pub(crate) fn codes(&self) -> impl Iterator<Item = (u8, u32, u32)> {
        let lengths = (1_u32..=16).zip(self.counts);
        let lengths =
            lengths.flat_map(|(length, n)| std::iter::repeat_n(length, n.into()));
        let (mut next, mut last_length) = (0_u32, 0);
        self.symbols.iter().zip(lengths).map(move |(&symbol, length)| {
            // 256 symbols of 16 bits at most: nothing is lost.
            let code = next.unbounded_shl(length.saturating_sub(last_length));
            (next, last_length) = (code.saturating_add(1), length);
            (symbol, code, length)
        })
    }

    /// The standard's own code: for brightness in slot 0, else for colour.
    pub(crate) fn standard(class: Class, slot: usize) -> Self {
        let bytes = Self::standard_bytes(class, slot);
        Self::read(bytes).expect("the standard's tables are whole").0
    }

    /// The same as a DHT segment has it: how many codes there are of each length, their symbols.
    pub(crate) fn standard_bytes(class: Class, slot: usize) -> &'static [u8] {
        match (class, slot) {
            (Class::Dc, 0) => standard::DC_LUMINANCE,
            (Class::Dc, _) => standard::DC_CHROMINANCE,
            (Class::Ac | Class::Progressive, 0) => standard::AC_LUMINANCE,
            (Class::Ac | Class::Progressive, _) => standard::AC_CHROMINANCE,
        }
    }
}
