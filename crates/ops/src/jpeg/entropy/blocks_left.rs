//! How much work the scans of a file may be: [`BlocksLeft`].
//!
//! A scan of a few bytes can visit all blocks of an image, and a file can have many of them. Read
//! `progressive.rs` next.

/// Most blocks that the scans of a file may visit: seconds of work. The largest image may have thirty
/// scans of all its blocks.
const MOST_BLOCKS: usize = 1 << 27;

/// Blocks that scans may still visit: those of one file, whether it is a JPEG or has several in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlocksLeft(usize);

impl Default for BlocksLeft {
    fn default() -> Self {
        Self(MOST_BLOCKS)
    }
}

impl BlocksLeft {
    /// Takes those that a scan visits, if there are as many.
    pub(crate) fn take(&mut self, n: usize) -> Option<()> {
        self.0 = self.0.checked_sub(n)?;
        Some(())
    }
}

#[cfg(test)]
impl BlocksLeft {
    pub(crate) fn new(n: usize) -> Self {
        Self(n)
    }
}
