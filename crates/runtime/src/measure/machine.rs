//! The machine a figure was measured on, and what it offers a run.

use std::fs;

use bothends_io::ReaderKind;
use serde::{Deserialize, Serialize};

use crate::config::run::ReadConfig;
use crate::devices::emulator;
use crate::runtime::assembly::reader_of;
use crate::threads::process;

/// What was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's own name.
    pub processor: String,
    /// Processors this process may run on.
    pub cores: u32,
    /// Memory in bytes; `None` where the kernel does not say.
    pub memory_bytes: Option<u64>,
    /// Kernel release.
    pub kernel: String,
    /// Whether `io_uring` works here, in words.
    pub io_uring: String,
    /// Where the device emulator is, in words.
    pub firmware_sim: String,
}

impl Machine {
    /// Looks. Opens a ring with the buffers of a run and closes it again.
    #[must_use]
    pub fn read() -> Self {
        let cores = process::cores();
        Self {
            processor: process::processor(),
            cores,
            memory_bytes: process::machine_memory_bytes(),
            kernel: kernel(),
            io_uring: io_uring(cores),
            firmware_sim: match emulator::firmware_sim() {
                Ok(path) => path.display().to_string(),
                Err(why) => why,
            },
        }
    }

    /// Processor, cores, memory and kernel on one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let Self { processor, cores, memory_bytes, kernel, .. } = self;
        summary((processor, kernel), *cores, *memory_bytes)
    }

    /// That line of this machine, without opening a ring.
    #[must_use]
    pub fn summary_here() -> String {
        let memory_bytes = process::machine_memory_bytes();
        summary((&process::processor(), &kernel()), process::cores(), memory_bytes)
    }
}

fn kernel() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    kernel.trim().to_owned()
}

fn summary(
    (processor, kernel): (&str, &str),
    cores: u32,
    memory_bytes: Option<u64>,
) -> String {
    let memory =
        memory_bytes.map_or("unknown".to_owned(), |b| format!("{} GiB", b >> 30));
    let of_cores = if cores == 1 { "core" } else { "cores" };
    format!("{processor}, {cores} {of_cores}, {memory} memory, Linux {kernel}")
}

/// As a run with so many workers has it: the limit of locked memory decides whether its buffers are registered.
fn io_uring(workers: u32) -> String {
    let read = ReadConfig { kind: ReaderKind::Uring, ..ReadConfig::default() };
    match bothends_io::open_reader(&reader_of(&read, workers)) {
        Ok(reader) => match reader.note() {
            Some(note) => format!("works; {note}"),
            None => "works".to_owned(),
        },
        Err(error) => format!("not used: {error}; samples are read with pread"),
    }
}
