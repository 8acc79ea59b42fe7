//! Host storage: where bytes come from on the host, as fast as the kernel delivers them.
//!
//! A [`Reader`] takes requests and returns bytes, out of order, from a bounded set of aligned buffers. Two
//! readers give the same bytes: io_uring, and `pread` where io_uring is not available. This crate knows
//! neither samples nor formats and spawns no thread.
//!
//! Reading order: `buffer` is the memory. `files` has the open files (`files/regular` refuses everything
//! else, and `files/beneath` what lies outside a folder; `files/drive` sends commands to NVMe drives).
//! `span` says which bytes a request needs, and what to do after a short read. `reader` is the interface,
//! followed by `pread`, the reference, and `uring`; `open` chooses one. `list` lists folders, and `folder`
//! is one as data sets see it. `draft` writes a file that appears complete, and `writer` a long one.
//! `conformance` has what every reader must guarantee.

mod error;

mod buffer;
mod draft;
mod files;
mod folder;
mod list;
mod span;
mod writer;

mod reader;

mod readers;

pub mod conformance;

pub use buffer::{ALIGNMENT, Buffer, Bytes, Pool, Pooled};
pub use draft::{
    Draft, check_replaceable, place_first, replace, take_place, write_beside,
};
pub use error::IoError;
pub use files::beneath::{Beneath, Links, RefusedLink};
pub use files::drive::{
    DriveCommand, DriveData, DriveDone, DriveQueue, DriveRing, namespace_of,
};
pub use files::regular::{
    is_of_machine, is_own_folder, keeps_its_number, open_lock, open_own, open_regular,
    read_regular, will_need,
};
pub use files::roots::Roots;
pub use files::space::{Medium, free_bytes, medium};
pub use files::{Direct, Files, OpenFile, read_cached};
pub use folder::Folder;
pub use list::list;
pub use reader::{
    ReadDone, ReadInto, ReadRequest, Reader, ReaderConfig, ReaderKind, Refusal, Refused,
};
pub use readers::open::open_reader;
pub use readers::pread::PreadReader;
pub use readers::uring::UringReader;
pub use writer::FileWriter;
