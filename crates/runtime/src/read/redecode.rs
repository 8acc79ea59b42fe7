//! A decoder of the caller's, for the records that `ops` refuses: damaged images, and formats
//! that it does not read.

use std::fmt;
use std::sync::Arc;

/// Decodes what `ops` does not. Called by the feed, with one record at a time; a call may take
/// long, and holds up the batch that the record is in.
pub trait Redecode: Send + Sync + fmt::Debug {
    /// The record's image as a PNG of its pixels: RGB, 8 bits.
    ///
    /// # Errors
    /// One line: why there is no image. The sample is then a bad one (`on_bad`).
    fn redecode(&self, record: &[u8]) -> Result<Vec<u8>, String>;
}

/// The caller's decoder, shared by whoever makes samples again.
pub type Redecoder = Arc<dyn Redecode>;
