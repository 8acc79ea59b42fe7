//! Entropy-coded data: bits become coefficients (T.81 Annexes F and G).
//!
//! ```text
//! bits, lookup ─► sequential ─► whole
//!             │            └──► entry_points ─► note, point
//!             └─► progressive
//! ```
//!
//! The other direction is `store/rebuild/scan.rs`. Read `bits.rs` next.

pub(crate) mod bits;
pub(crate) mod lookup;
pub(crate) mod note;
pub(crate) mod point;

pub(crate) mod entry_points;
pub(crate) mod sequential;

pub(crate) mod blocks_left;
pub(crate) mod progressive;
pub(crate) mod whole;
