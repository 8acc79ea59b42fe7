//! Where bytes that are read from a channel go.

use std::hash::Hasher;

use bothends_slots::copy_past_caches;
use twox_hash::XxHash3_64;

/// A place for bytes, which knows how many have come.
pub(crate) trait Destination {
    /// Where the next bytes go; empty once all have come.
    fn room(&mut self) -> &mut [u8];

    /// The first `n` bytes of [`Self::room`] have come.
    fn filled(&mut self, n: usize);

    /// Takes as much of `bytes` as has room; how much that is.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let room = self.room();
        let n = room.len().min(bytes.len());
        room[..n].copy_from_slice(&bytes[..n]);
        self.filled(n);
        n
    }
}

/// Ordinary memory.
pub(crate) struct Plain<'a> {
    bytes: &'a mut [u8],
    n_here: usize,
}

impl<'a> Plain<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, n_here: 0 }
    }
}

impl Destination for Plain<'_> {
    fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.n_here..]
    }

    fn filled(&mut self, n: usize) {
        self.n_here += n;
    }
}

/// A batch on its way into its slot, hashed while the processor's cache has it.
pub(crate) struct Payload<'a> {
    bytes: &'a mut [u8],
    n_here: usize,
    hash: XxHash3_64,
}

impl<'a> Payload<'a> {
    /// Of as many bytes as `bytes` has.
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, n_here: 0, hash: XxHash3_64::new() }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.n_here == self.bytes.len()
    }

    /// XXH3-64 of what has come.
    pub(crate) fn checksum(&self) -> u64 {
        self.hash.finish()
    }
}

impl Destination for Payload<'_> {
    fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.n_here..]
    }

    fn filled(&mut self, n: usize) {
        self.hash.write(&self.bytes[self.n_here..self.n_here + n]);
        self.n_here += n;
    }

    fn take(&mut self, bytes: &[u8]) -> usize {
        let n = self.room().len().min(bytes.len());
        self.hash.write(&bytes[..n]);
        copy_past_caches(&mut self.room()[..n], &bytes[..n]);
        self.n_here += n;
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_hashed_once_however_it_comes() {
        let sent: Vec<u8> = (0..300_u16).map(|at| at.to_le_bytes()[0]).collect();
        let mut slot = vec![0; sent.len()];
        let mut payload = Payload::new(&mut slot);
        payload.room()[..100].copy_from_slice(&sent[..100]);
        payload.filled(100);
        assert_eq!(payload.take(&sent[100..250]), 150);
        assert!(!payload.is_whole());
        // The next message's bytes are not its own.
        assert_eq!(payload.take(&[&sent[250..], &[9; 40]].concat()), 50);
        assert!(payload.is_whole() && payload.room().is_empty());
        assert_eq!(payload.checksum(), XxHash3_64::oneshot(&sent));
        assert_eq!(slot, sent);
    }
}
