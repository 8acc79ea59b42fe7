//! The machine a figure was measured on, and what it offers a run.

use std::fs;

use bothends_io::{ReaderConfig, ReaderKind};
use serde::{Deserialize, Serialize};

use crate::devices::emulator;
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
    /// Looks. Opens one ring and closes it again.
    #[must_use]
    pub fn read() -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            processor: process::processor(),
            cores: process::cores(),
            memory_bytes: process::machine_memory_bytes(),
            kernel: kernel.trim().to_owned(),
            io_uring: io_uring(),
            firmware_sim: match emulator::firmware_sim() {
                Ok(path) => path.display().to_string(),
                Err(why) => why,
            },
        }
    }

    /// Processor, cores, memory and kernel on one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let memory = self
            .memory_bytes
            .map_or("unknown".to_owned(), |b| format!("{} GiB", b >> 30));
        let Self { processor, cores, kernel, .. } = self;
        let of_cores = if *cores == 1 { "core" } else { "cores" };
        format!("{processor}, {cores} {of_cores}, {memory} memory, Linux {kernel}")
    }
}

fn io_uring() -> String {
    let config = ReaderConfig { kind: ReaderKind::Uring, ..ReaderConfig::default() };
    match bothends_io::open_reader(&config) {
        Ok(reader) => match reader.note() {
            Some(note) => format!("works; {note}"),
            None => "works".to_owned(),
        },
        Err(error) => format!("not used: {error}; samples are read with pread"),
    }
}
