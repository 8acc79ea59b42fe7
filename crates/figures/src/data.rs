//! The data set of a run as this process has listed it, so that ranks which cannot talk to each other can be
//! compared by whoever started them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Number and hash of the samples. Ranks of one run must have the same, or some samples come twice and others
/// never.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataSet {
    /// Samples of the data set, before it is repeated.
    pub samples: u64,
    /// Hash of their table (names, lengths, labels), 32 hexadecimal digits: that of resume states and of
    /// `bothends inspect`.
    pub table_hash: String,
}

impl fmt::Display for DataSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} samples, table hash {}", self.samples, self.table_hash)
    }
}
