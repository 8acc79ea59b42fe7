//! The host's side: from an address to a transport (`connect`), and what every transport has in
//! common: credits, the fuse, and for those over a wire the one `remote`. `loopback` is the
//! reference, `stream` goes over sockets; the spool has both its sides in `spool.rs`.

pub mod connect;
pub(crate) mod credits;
pub(crate) mod fuse;
pub mod loopback;
pub mod remote;
pub mod stream;
