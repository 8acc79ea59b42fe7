//! What a run is told: `run` of its data and resources, `drive` of its epochs, `energy` of its
//! meters; `options` reads the same from names and values, and `nearest` says what was meant.

pub(crate) mod drive;
pub(crate) mod energy;
pub(crate) mod nearest;
pub(crate) mod options;
pub(crate) mod run;
