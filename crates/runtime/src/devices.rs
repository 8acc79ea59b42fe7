//! Devices: how one is named (`spec`), an emulated one's process (`emulator`), the thread that waits for
//! it (`thread`), how one is reached, again and again where it is missing (`reach`), the members of a pool that come and go
//! (`sources` lists them, `roster` gives them places, `seat` is a place's thread), whether its data are
//! the host's (`attest`), how far it is believed (`trust`), what is said of that (`presence`), a GPU of
//! this machine as one (`gpu`), and a producer of the caller's in place of one (`plain`).

pub(crate) mod attest;
pub(crate) mod emulator;
pub(crate) mod gpu;
pub(crate) mod plain;
pub(crate) mod presence;
pub(crate) mod reach;
pub(crate) mod roster;
pub(crate) mod seat;
pub(crate) mod sources;
pub(crate) mod spec;
pub(crate) mod thread;
pub(crate) mod trust;
