//! Names of things as types, so that an index of one kind cannot be used for another.
//!
//! Nothing here has behaviour. Read `plan.rs` next.

use serde::{Deserialize, Serialize};

/// A sample of the (repeated) data set: `0 .. n_samples * repeat`.
///
/// The record it names in the extent table is `id % n_samples`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleId(pub u64);

/// A batch of one epoch of one rank, counted in plan order from the epoch's (or the
/// resumed part's) first batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchIdx(pub u32);

/// An epoch, counted from 0.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct EpochIdx(pub u32);

impl EpochIdx {
    /// That of measurements: none that is trained on, unless ids do not reach that far.
    pub const MEASURED: Self = Self(u32::MAX);
}

/// A device of this run, in the order of the `--csd` flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIdx(pub u16);

/// The class of a sample; `-1` in a masked row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(pub i64);

/// Who preprocesses a batch: the host's workers, or one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prong {
    /// The host's workers.
    Front,
    /// A device.
    Back(DeviceIdx),
}

/// A point on the caller's clock in nanoseconds since the epoch began: wall time in the
/// runtime, virtual time in the simulator. `core` never reads a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ns(pub u64);

impl Ns {
    /// The time from `earlier` to `self`, or zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This point plus `ns` nanoseconds; saturates.
    #[must_use]
    pub fn plus(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}
