//! The device in software: the agent's server over models of media, compute, link and power.
//!
//! Every batch is made for real, by the same code as on a real device, from the files below
//! the media folder; the models only say when it is answered and what it cost. Nothing here
//! serves, decodes or knows a format again. What comes out of a model is called modelled.
//!
//! Reading order: `device` joins the models; `media`, `compute`, `link` and `power` are
//! them; `config` is what a preset file says and `preset` the ones that come along; `fault`
//! is what may go wrong on purpose; `program` is the command line.

pub mod device;

pub mod compute;
pub mod link;
pub mod media;
pub mod power;

pub mod config;
pub mod preset;

pub mod fault;

pub mod program;

mod hardware;

pub use device::{Device, Pace};
pub use hardware::{pin_to, thread_cpu_ns};
