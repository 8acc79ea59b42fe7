//! What a run is told: `run` of its data and resources, `drive` of its epochs and meters;
//! `mix` of several data sets that it mixes; `options` reads the same from names and values. `deliver` is where batches go; `gpus` where GPUs come
//! from; `cache` how large the block cache may be; `share` what a process takes of a machine that others use.

pub(crate) mod cache;
pub(crate) mod deliver;
pub(crate) mod drive;
pub(crate) mod fetch;
pub(crate) mod gpus;
pub(crate) mod mix;
pub(crate) mod options;
pub(crate) mod run;
pub(crate) mod share;
