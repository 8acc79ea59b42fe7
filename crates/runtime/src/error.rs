//! What can go wrong in a run, by what the caller does next.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use bothends_core::ids::SampleId;
use bothends_core::one_line_by;
use bothends_core::setting::{Names, NamesSettings, Setting, advice};
use bothends_csd::CsdError;
use bothends_figures::RunResult;
use bothends_gpu::GpuError;
use nix::errno::Errno;

/// How long a machine that fails to read is asked again.
pub(crate) const MACHINE_PATIENCE: Duration = Duration::from_secs(2);

/// An error of the host runtime.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The data cannot be opened or listed.
    #[error("cannot open the data set {path}: {why}")]
    Data {
        /// As given.
        path: PathBuf,
        /// One line, with the remedy.
        why: String,
    },
    /// The plan refuses the numbers.
    #[error(transparent)]
    Plan(#[from] bothends_core::plan::PlanError),
    /// A supplied order that makes no sense.
    #[error(transparent)]
    Order(#[from] bothends_core::order::OrderError),
    /// The recipe does not fit the data.
    #[error(transparent)]
    Recipe(#[from] bothends_core::recipe::RecipeError),
    /// The recipe cannot be run by this build.
    #[error(transparent)]
    Ops(#[from] bothends_ops::OpsError),
    /// The limit of memory is less than batches need.
    #[error("{}", self.with_names(Setting::key))]
    Memory {
        /// Samples of a batch.
        batch_size: u32,
        /// The limit.
        given_bytes: usize,
        /// What they take at least.
        least_bytes: usize,
        /// Samples of a batch that the limit is enough for; 0 when there is no such batch.
        largest_batch: u32,
    },
    /// More workers than records can have buffers for.
    #[error("{}", self.with_names(Setting::key))]
    Workers {
        /// As given.
        given: u32,
        /// The most there can be.
        most: u32,
    },
    /// Storage cannot be read at all.
    #[error(transparent)]
    Io(#[from] bothends_io::IoError),
    /// No memory for batches.
    #[error(transparent)]
    Slots(#[from] bothends_slots::SlotError),
    /// A device SPEC that makes no sense.
    #[error("{}", self.with_names(Setting::key))]
    DeviceSpec {
        /// As given.
        spec: String,
        /// What is wrong and what is expected.
        why: String,
    },
    /// Devices are required, and no member of a pool can be reached.
    #[error(
        "no member of the pool {device} takes part; are agents running there, with the same data and \
         key?"
    )]
    EmptyPool {
        /// The pool as given.
        device: String,
    },
    /// A device could not be started or refused the session.
    #[error("{}", self.with_names(Setting::key))]
    Device {
        /// As given on the command line.
        device: String,
        /// What the device or the link said.
        source: CsdError,
    },
    /// The device program could not be started.
    #[error("cannot start the device {spec}: {why}")]
    Spawn {
        /// As given on the command line.
        spec: String,
        /// One line, with the remedy.
        why: String,
    },
    /// A sample that cannot be read or decoded, under the policy `raise`.
    #[error("{}", self.with_names(Setting::key))]
    BadSample {
        /// The sample.
        sample: SampleId,
        /// Its file.
        file: String,
        /// What the reader or decoder said.
        why: String,
        /// The prong that met it first: `the host`, or a device by its name.
        found_by: String,
    },
    /// The machine fails to read a file, whatever it holds, and still does after some attempts.
    #[error("{}", self.with_names(Setting::key))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A store that the data are in fails, or an object in it is not what it was.
    #[error("{why}")]
    Remote {
        /// One line that names the object, the place and the remedy.
        why: String,
    },
    /// Fewer files may be open than the run needs.
    #[error(
        "at most {limit} files may be open, and this run needs {need}; raise the limit \
         (ulimit -n {need}), or name fewer devices"
    )]
    OpenFiles {
        /// The limit, which cannot be raised from here.
        limit: u64,
        /// What is needed.
        need: u64,
    },
    /// Less memory may be addressed than the run needs.
    #[error("{}", self.with_names(Setting::key))]
    Addresses {
        /// The limit in bytes.
        limit: u64,
        /// What is needed, in bytes.
        need: u64,
    },
    /// Nothing can go on because the consumer keeps every slot.
    #[error(
        "all {slots} slots are held by the consumer; release batches before asking for more"
    )]
    Starved {
        /// Slots of the ring.
        slots: u32,
    },
    /// The GPU that batches are delivered to cannot be used, or failed.
    #[error("{}", self.with_names(Setting::key))]
    Gpu {
        /// Its name: `cuda:0`.
        gpu: String,
        /// What the driver said.
        why: GpuError,
    },
    /// A device made bytes other than the host's.
    #[error("{}", self.with_names(Setting::key))]
    Untrusted {
        /// As given on the command line.
        device: String,
        /// The batch audited.
        batch: u32,
        /// A sample of it that differs.
        sample: SampleId,
        /// Batches of the device that were delivered before and not made again as a whole.
        n_delivered: u64,
    },
    /// The epoch ended by an error that one of its consumers was told.
    #[error(
        "the epoch ended with an error that consumer {consumer} was told; begin the next one"
    )]
    EndedByError {
        /// That consumer.
        consumer: u32,
    },
    /// A newer epoch of the same loader took this one's place.
    #[error(
        "this iterator was ended by a newer one of the same loader: a loader has one epoch at \
         a time; make another loader to iterate twice at once"
    )]
    Superseded,
    /// The loader was closed while a consumer waited.
    #[error("the loader was closed; make another one")]
    Closed,
    /// Another process than the one that made the loader.
    #[error(
        "this loader was made in process {made_in} and this is process {here}, a fork of it, \
         which has none of its threads; make the loader after the fork, or start the \
         process with spawn"
    )]
    Forked {
        /// The process that made it.
        made_in: u32,
        /// The one that asks.
        here: u32,
    },
    /// An option of a loader that makes no sense.
    #[error("{0}")]
    Options(String),
    /// A thread of ours died: a bug.
    #[error("internal error: thread `{thread}` ended unexpectedly; please report this")]
    Thread {
        /// Its name.
        thread: &'static str,
    },
    /// The operating system would not start a thread.
    #[error("cannot start thread `{thread}`")]
    Spawning {
        /// Its name.
        thread: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A meter of energy that was asked for cannot be read.
    #[error(transparent)]
    Energy(#[from] bothends_energy::EnergyError),
    /// A checkpoint that does not belong to this run.
    #[error(transparent)]
    Resume(#[from] bothends_core::resume::ResumeError),
    /// The state cannot be saved.
    #[error("cannot write the checkpoint {}; is its folder there, writable and not full?", path.display())]
    Checkpoint {
        /// Where it was to go.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The run is over, and its last state cannot be saved.
    #[error("the run is over, and its last state was not kept")]
    Unsaved {
        /// What the run came to.
        result: Box<RunResult>,
        /// Why it cannot be saved.
        source: Box<Self>,
    },
    /// Resuming is not possible as asked.
    #[error("cannot resume: {why}")]
    CannotResume {
        /// What does not fit and what to do.
        why: String,
    },
}

/// What a caller can do about an error: what a language binding makes a class or a code of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An option, the recipe or the plan makes no sense: ask for something else.
    Options,
    /// The data cannot be opened, listed or read.
    Data,
    /// A sample cannot be preprocessed, and the policy is `raise`.
    Sample,
    /// A device cannot be reached, refuses, or made other bytes than the host.
    Device,
    /// The consumer keeps so many batches that nothing can go on.
    Starved,
    /// The epoch ended by an error that a consumer was told.
    Ended,
    /// This is a fork of the process that made the loader.
    Forked,
    /// A state that belongs to another run, or cannot be saved now.
    State,
    /// Memory or threads that the system does not give.
    System,
    /// A mistake of this program.
    Bug,
}

impl RuntimeError {
    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Options(_)
            | Self::Memory { .. }
            | Self::Workers { .. }
            | Self::Plan(_)
            | Self::Order(_)
            | Self::Superseded
            | Self::Closed
            | Self::Recipe(_)
            | Self::Ops(_)
            | Self::DeviceSpec { .. } => ErrorKind::Options,
            Self::Data { .. }
            | Self::Io(_)
            | Self::Unreadable { .. }
            | Self::Remote { .. } => ErrorKind::Data,
            Self::BadSample { .. } => ErrorKind::Sample,
            Self::Device { .. }
            | Self::EmptyPool { .. }
            | Self::Spawn { .. }
            | Self::Untrusted { .. }
            | Self::Gpu { .. } => ErrorKind::Device,
            Self::Starved { .. } => ErrorKind::Starved,
            Self::EndedByError { .. } => ErrorKind::Ended,
            Self::Forked { .. } => ErrorKind::Forked,
            Self::Resume(_)
            | Self::CannotResume { .. }
            | Self::Checkpoint { .. }
            | Self::Unsaved { .. } => ErrorKind::State,
            Self::Slots(_)
            | Self::Energy(_)
            | Self::Spawning { .. }
            | Self::OpenFiles { .. }
            | Self::Addresses { .. } => ErrorKind::System,
            Self::Thread { .. } => ErrorKind::Bug,
        }
    }
}

/// An error and its causes in one line, with the names that a binding or program uses for the settings.
#[must_use]
pub fn one_line_with(error: &(dyn Error + 'static), name: Names) -> String {
    one_line_by(error, |error| {
        let of_device = || error.downcast_ref().map(|it: &CsdError| it.with_names(name));
        let ours = error.downcast_ref().map(|it: &RuntimeError| it.with_names(name));
        ours.or_else(of_device).unwrap_or_else(|| error.to_string())
    })
}

/// What helps where a GPU cannot be used.
fn gpu_remedy(why: &GpuError, name: Names) -> String {
    let how = advice(name, &[(Setting::Deliver, " ({} \"cpu\")")]).unwrap_or_default();
    if matches!(why, GpuError::Unavailable { .. }) {
        format!("without one, deliver batches in host memory{how}")
    } else if matches!(why, GpuError::OutOfMemory { .. } | GpuError::Slots { .. }) {
        format!("or deliver batches in host memory{how}")
    } else {
        "start a new process and continue from the last state".to_owned()
    }
}

/// A thread that the system does not start, with what helps.
pub(crate) fn no_thread(thread: &'static str, source: std::io::Error) -> RuntimeError {
    let source = match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EAGAIN) => {
            let why = format!(
                "{source}; raise the limit on threads (ulimit -u, or pids.max of a container), \
                 or use fewer workers"
            );
            std::io::Error::new(source.kind(), why)
        }
        Some(_) | None => source,
    };
    RuntimeError::Spawning { thread, source }
}

/// What helps a machine that fails to read.
fn remedy(source: &std::io::Error) -> &'static str {
    match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE) => "raise the limit of open files (ulimit -n)",
        Some(Errno::ENFILE) => "close files of other programs, or raise fs.file-max",
        Some(Errno::ENOMEM) => "give it more memory",
        Some(Errno::EACCES | Errno::EPERM) => "give this user permission to read it",
        Some(_) | None => "check the storage it is on, and continue from a checkpoint",
    }
}

/// What helps where a sample cannot be made.
const CONTINUE: &str = "use {} skip, replace or zero to continue without it";

impl NamesSettings for RuntimeError {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others name no setting")]
    fn with_names(&self, name: Names) -> String {
        match self {
            Self::Plan(error) => error.with_names(name),
            Self::Resume(error) => error.with_names(name),
            Self::Memory { batch_size, given_bytes, least_bytes, largest_batch } => {
                let memory = name(Setting::Memory);
                let least = least_bytes.div_ceil(1 << 20);
                // The other remedy, where there is one.
                let smaller = match largest_batch {
                    0 => String::new(),
                    n => format!(", or {} {n}", name(Setting::BatchSize)),
                };
                format!(
                    "{memory} {} is too little: batches of {batch_size} samples take \
                     {least} MiB; use {memory} {least}{smaller}",
                    given_bytes >> 20
                )
            }
            Self::Workers { given, most } => {
                let workers = name(Setting::Workers);
                format!(
                    "{workers} {given} is more than the {most} that the reader has buffers for; \
                     use {workers} {most} or fewer"
                )
            }
            Self::DeviceSpec { spec, why } => {
                format!("cannot use `{} {spec}`: {why}", name(Setting::Devices))
            }
            Self::Device { device, source } => {
                format!("device {device}: {}", source.with_names(name))
            }
            Self::Gpu { gpu, why } => format!("{gpu}: {why}; {}", gpu_remedy(why, name)),
            Self::BadSample { sample, file, why, found_by } => format!(
                "sample {} ({file}) cannot be preprocessed by {found_by}: {why}; {}",
                sample.0,
                advice(name, &[(Setting::OnBad, CONTINUE)])
                    .unwrap_or_else(|| "remove it from the data set".to_owned())
            ),
            // The cause says what the system said.
            Self::Addresses { limit, need } => {
                let smaller = [Setting::Memory, Setting::BatchSize];
                let smaller = advice(name, &smaller.map(|it| (it, "a smaller {}")));
                let smaller =
                    smaller.map_or(String::new(), |it| format!(", or use {it}"));
                format!(
                    "this process may address {} MiB, and this run needs about {}; raise the \
                     limit (ulimit -v {}){smaller}",
                    limit >> 20,
                    need >> 20,
                    need >> 10,
                )
            }
            Self::Unreadable { path, source } => format!(
                "the machine failed to read `{}` for {} s, which says nothing about the sample; {}",
                path.display(),
                MACHINE_PATIENCE.as_secs(),
                remedy(source)
            ),
            Self::Untrusted { device, batch, sample, n_delivered } => format!(
                "device {device} returned wrong samples (batch {batch}, sample {}); \
                 {n_delivered} of its batches had already been delivered; restart from an earlier \
                 checkpoint and remove it from {}",
                sample.0,
                name(Setting::Devices)
            ),
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use bothends_csd::Remedy;

    use super::*;

    #[test]
    fn an_error_of_a_connection_names_the_settings_of_whoever_prints_it() {
        let flag: Names =
            |setting| if setting == Setting::Insecure { "--insecure" } else { "" };
        let what = "tcp://nas:7070 leaves this machine".to_owned();
        let source = CsdError::Untrusted { what, remedy: Remedy::Encrypt };
        let error = RuntimeError::Device { device: "tcp://nas:7070".to_owned(), source };
        let said = "device tcp://nas:7070: tcp://nas:7070 leaves this machine; use \
                    tcp+noise:// or tls:// on both sides, or";
        assert_eq!(one_line_with(&error, flag), format!("{said} `--insecure` on both"));
        assert_eq!(one_line_with(&error, Setting::key), error.to_string());
        assert_eq!(error.to_string(), format!("{said} `insecure` on both"));
        let RuntimeError::Device { source, .. } = error else { panic!("a device") };
        assert!(one_line_with(&source, flag).ends_with("or `--insecure` on both"));
    }

    #[test]
    fn a_gpu_that_cannot_be_used_names_the_setting_where_there_is_one() {
        let why = || GpuError::Unavailable { why: "no driver".to_owned() };
        let named = gpu_remedy(&why(), Setting::key);
        assert!(named.ends_with("in host memory (device \"cpu\")"), "{named}");
        assert!(gpu_remedy(&why(), |_| "").ends_with("in host memory"));
    }

    #[test]
    fn a_thread_that_the_system_does_not_start_has_a_remedy() {
        let source = std::io::Error::from_raw_os_error(Errno::EAGAIN as i32);
        let line = one_line_with(&no_thread("reader", source), Setting::key);
        assert!(line.starts_with("cannot start thread `reader`: "), "{line}");
        assert!(line.contains("(os error 11); raise the limit on threads"), "{line}");
        let other = no_thread("reader", std::io::Error::from_raw_os_error(1));
        assert!(!one_line_with(&other, Setting::key).contains("raise"));
    }
}
