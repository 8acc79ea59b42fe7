//! The device's side: where it listens, the one loop that serves a host, and how it opens files that a
//! host names.

pub(crate) mod admit;
pub mod listen;
pub(crate) mod serving;

pub use bothends_io::{
    Beneath, Links, RefusedLink, is_of_machine, keeps_its_number, will_need, write_beside,
};
