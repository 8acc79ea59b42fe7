//! What a run is told: `run` of its data and resources, `drive` of its epochs and meters;
//! `options` reads the same from names and values, and `nearest` says what was meant. `deliver` is where
//! batches go; `share` what a process takes of a machine that others use, too.

pub(crate) mod deliver;
pub(crate) mod drive;
pub(crate) mod nearest;
pub(crate) mod options;
pub(crate) mod run;
pub(crate) mod share;
