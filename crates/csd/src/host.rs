//! The host's side: from an address to a transport (`connect`), and what all transports have in common:
//! credits, the fuse, and `remote` for those over a wire. `loopback` is the reference, `stream` uses
//! sockets, `nvme` drives a device that has no agent, and the spool has both its sides in `spool.rs`. `pulse` decides
//! when a silent device is gone. `registry` is what agents and hosts ask those that list the members of a pool.

pub mod connect;
pub(crate) mod credits;
pub(crate) mod fuse;
pub mod loopback;
pub(crate) mod nvme;
pub(crate) mod pulse;
pub mod registry;
pub mod remote;
pub mod stream;
