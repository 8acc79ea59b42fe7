//! The device in software: the agent's server over models of media, compute, link and power.
//!
//! Every batch is made for real, by the same code as on a real device, from the files below the media
//! folder. The models only decide when it is answered and what it cost. Nothing here reimplements serving,
//! decoding or a format. Every result of a model is labelled modelled.
//!
//! Reading order: `device` combines the models; `media`, `compute`, `link` and `power` are the models;
//! `nvme` is the device as NVMe has it;
//! `config` defines a preset file and `preset` has the built-in ones; `fault` has what can go wrong on
//! purpose; `program` is the command line.

pub mod device;

pub mod compute;
pub mod link;
pub mod media;
pub mod power;

pub mod config;
pub mod preset;

pub mod fault;

pub mod nvme;

pub mod program;

mod hardware;

pub use device::{Demand, Device, Drive, Lateness, Pace, Passage, Timing, Vitals};
pub use hardware::{pin_to, thread_cpu_ns};
