//! What a run is told: `run` of its data and resources, `drive` of its epochs and meters;
//! `options` reads the same from names and values. `share` is what a process takes of a machine
//! that others use, too.

pub(crate) mod drive;
pub(crate) mod options;
pub(crate) mod run;
pub(crate) mod share;
