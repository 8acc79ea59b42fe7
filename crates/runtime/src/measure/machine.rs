//! The machine a figure was measured on, and what it offers a run.

use std::fs;
use std::path::Path;

use bothends_io::{ReaderConfig, ReaderKind};

use crate::devices::spec;

/// What was found.
#[derive(Debug, Clone)]
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
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = cpuinfo.lines().find_map(|l| l.strip_prefix("model name"));
        let processor =
            name.and_then(|l| l.split_once(':')).map_or("unknown processor", |p| p.1);
        let cores =
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"));
        let kb = memory.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            processor: processor.trim().to_owned(),
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            memory_bytes: kb.map(|kb| kb * 1024),
            kernel: kernel.trim().to_owned(),
            io_uring: io_uring(),
            firmware_sim: match spec::firmware_sim() {
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
        format!("{processor}, {cores} cores, {memory} memory, Linux {kernel}")
    }
}

/// Memory that programs may still take, in bytes, what the page cache would give back
/// included: the machine's, or less where a control group (version 2) of this process has a
/// limit. `None` where the kernel does not say.
pub(crate) fn available_memory_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let available = meminfo.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kb: u64 = available.split_whitespace().next()?.parse().ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|l| l.strip_prefix("0::/")).unwrap_or_default();
    let limits = Path::new(group).ancestors().filter_map(|group| {
        let limit = Path::new("/sys/fs/cgroup").join(group).join("memory.max");
        // "max" is none.
        fs::read_to_string(limit).ok()?.trim().parse::<u64>().ok()
    });
    Some(limits.fold(kb.saturating_mul(1024), u64::min))
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
