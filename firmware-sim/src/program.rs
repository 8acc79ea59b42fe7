//! `firmware-sim`: a computational storage device in software, as a process of its own.
//!
//! Only arguments and exit status are here; the rest of this crate does the work, and the package
//! `bothends` has the program. Exit status: 0 after an
//! orderly end, 1 when it cannot serve, 2 for bad arguments; a device that dies by its fault
//! `die` ends with 137, as a killed process does, and cleans up nothing.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bothends_agent::door::{Door, News, Visits};
use bothends_agent::{
    Costs, DataRoot, DecompressedPlace, DecompressingWatch, FileStore, Links, NoCosts,
    ReadyRoots, Server, ServerConfig, stop,
};
use bothends_core::setting::{Names, NamesSettings as _};
use bothends_csd::{Address, CsdError, Security, one_line_with};
use clap::{Command, CommandFactory, Parser, ValueEnum};

use crate::config::{Bound, DeviceConfig, PresetError};
use crate::device::TOLERANCE;
use crate::fault::{Fault, FaultConfig, Faulty};
use crate::nvme::{self, Advertise, BlockMedia, NvmeAddress};
use crate::{Device, Pace, pin_to, preset, thread_cpu_ns};

/// How often an NVMe device checks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);
/// Exit status of a device that died by its fault: that of a killed process.
const DEATH: i32 = 137;
/// What a device has where nobody gives another: memory of programs, slots, seed of faults.
const MEMORY_MIB: u32 = 64;
const SLOTS: u32 = 4;
const SEED: u64 = 0;

/// What it calls the settings that errors of connections name: it has none of them.
const NO_FLAG: Names = |_| "";

/// What becomes of programs that hosts load.
const LOADED: &str = if cfg!(feature = "wasm") {
    "As an NVMe device it runs programs that hosts load: WebAssembly, type C0h."
} else {
    "As an NVMe device it runs only its own programs. For a build that also runs programs that \
    hosts load, as WebAssembly: cargo install bothends --features wasm"
};

/// Emulates a computational storage device that serves preprocessed batches.
#[derive(Debug, Parser)]
#[command(name = "firmware-sim", version, after_help = LOADED)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct Args {
    /// The device: newport, smartssd, dpu-bf2, storage-server, 970-pro, zn540, ideal, or a
    /// preset file
    #[arg(long, value_name = "NAME|FILE")]
    preset: String,
    /// Which value to use for the preset's constants that have `low` and `high`: worst (long times, low
    /// rates, high power), value, or best
    #[arg(long, value_enum, default_value_t = Constants::Value)]
    constants: Constants,
    /// The folder with the same data set as on the host; for a mix of data sets, NAME=DIR once for each,
    /// with the names used on the host
    #[arg(long, value_name = "[NAME=]DIR", required = true)]
    media: Vec<DataRoot>,
    /// Where hosts connect: tcp://HOST:PORT, unix:///PATH or spool:///DIRECTORY; or
    /// nvme-tcp://HOST:PORT[/NQN], as an NVMe drive whose blocks are the media: the concatenated files of a
    /// folder, or an image. Anyone who reaches that port can read them, and can write to an image
    #[arg(long, value_name = "URL")]
    listen: Listen,
    /// The address that an NVMe device reports to discovery, if hosts reach it at a different one than they
    /// connect to, for example through a forwarded port
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Option<Advertise>,
    /// Memory for programs of an NVMe device [default: 64]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    memory: Option<u32>,
    /// functional: as fast as this machine; paced: answers at the modelled time. Virtual time needs a host
    /// in the same process: over a socket, it is unknown when the next command would have come
    #[arg(long, value_enum, default_value_t = Time::Paced)]
    time: Time,
    /// A fault to inject: die@P%, stall@P%:SECONDS, throttle@P%:FACTOR, slow-start,
    /// corrupt@P%, lie@P%, duplicate@P%, late@P% or refuse; may be repeated
    #[arg(long = "fault", value_name = "SPEC")]
    faults: Vec<Fault>,
    /// Batches expected from the device in an epoch, of which P% is a part [default: half of the batches in
    /// the data set]
    #[arg(long, value_name = "N")]
    fault_batches: Option<u64>,
    /// Seed of random faults [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Cores of the device [default: the preset's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cores: Option<u32>,
    /// Samples per second of the whole device, regardless of the preset; not with --time functional
    #[arg(long, value_name = "IMAGES_PER_S", value_parser = rate)]
    rate: Option<f64>,
    /// Batches accepted before one is finished [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: Option<u32>,
    /// The CPU of this machine to compute on
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,
    /// Ends after the first host has left
    #[arg(long)]
    once: bool,
    /// Ends when standard input ends
    #[arg(long)]
    die_with_stdin: bool,
}

impl Args {
    /// Refuses what would have no effect, in one line. `--seed` without a fault is none of it: whoever starts
    /// a device for a run gives it one in any case.
    fn check(&self) -> Result<(), String> {
        let (flags, why, elsewhere) = match &self.listen {
            Listen::Agent(_) => (
                given(&[
                    ("--memory", self.memory.is_some()),
                    ("--advertise", self.advertise.is_some()),
                ]),
                "only an NVMe device has memory for programs and is discovered",
                "nvme-tcp://HOST:PORT",
            ),
            Listen::Nvme(_) => (
                given(&[
                    ("--rate", self.rate.is_some()),
                    ("--fault", !self.faults.is_empty()),
                    ("--fault-batches", self.fault_batches.is_some()),
                    ("--seed", self.seed.is_some()),
                    ("--slots", self.slots.is_some()),
                    ("--once", self.once),
                ]),
                "an NVMe device has the times of its preset, no faults, queues as deep as hosts \
                 ask for, and serves all hosts",
                "tcp://, unix:// or spool://",
            ),
        };
        if !flags.is_empty() {
            let flags = flags.join(" and ");
            return Err(format!("{why}; leave out {flags}, or listen at {elsewhere}"));
        }
        match (self.rate, self.time) {
            (Some(rate), Time::Functional) => Err(format!(
                "--rate {rate} has no effect with --time functional, which models no time; leave \
                 out one of them"
            )),
            (Some(_), Time::Paced) | (None, Time::Functional | Time::Paced) => Ok(()),
        }
    }
}

/// Those flags that are given.
fn given(flags: &[(&'static str, bool)]) -> Vec<&'static str> {
    flags.iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| *flag).collect()
}

/// Where it listens, and with which protocol.
#[derive(Debug, Clone)]
enum Listen {
    /// For hosts that speak bothends' protocol.
    Agent(Address),
    /// For hosts that speak NVMe.
    Nvme(NvmeAddress),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(nvme::SCHEME) {
            return text.parse().map(Self::Nvme);
        }
        text.parse().map(Self::Agent).map_err(|e: CsdError| e.to_string())
    }
}

/// How modelled time and this machine's time are related.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Time {
    /// No modelled time, and so no modelled energy.
    Functional,
    /// A finished batch is held until its modelled time.
    Paced,
}

/// Which of a preset's numbers a device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Constants {
    /// Each at the end that makes the device slower, or use more.
    Worst,
    /// The numbers themselves.
    Value,
    /// Each at the other end.
    Best,
}

impl Constants {
    fn bound(self) -> Bound {
        match self {
            Self::Worst => Bound::Worst,
            Self::Value => Bound::Middle,
            Self::Best => Bound::Best,
        }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 1e-3);
    rate.ok_or_else(|| "give a number of images per second, at least 0.001".to_owned())
}

/// The arguments, for completions and man pages.
#[must_use]
pub fn command() -> Command {
    Args::command()
}

/// Serves as `args` say, of which the first is the program's name, until its host or a signal ends it;
/// returns the exit status. Blocks, and ends the process where arguments are wrong.
#[must_use]
pub fn main(args: impl IntoIterator<Item = OsString>) -> u8 {
    let args = Args::parse_from(args);
    if let Err(why) = args.check() {
        complain(format_args!("error: {why}"));
        return 2;
    }
    let device = match preset::load_at(&args.preset, args.constants.bound()) {
        Ok(device) => device,
        Err(error) => {
            complain(format_args!("error: {error}"));
            let is_unknown = matches!(error, PresetError::Unknown { .. });
            return if is_unknown { 2 } else { 1 };
        }
    };
    match run(&args, device) {
        Ok(()) => 0,
        Err(error) => {
            complain(format_args!("error: {}", one_line_with(error.as_ref(), NO_FLAG)));
            1
        }
    }
}

fn run(args: &Args, mut device: DeviceConfig) -> Result<()> {
    let stop = stop::on_signals().context("cannot handle signals")?;
    if args.die_with_stdin {
        stop::with_input(&stop).context("cannot watch standard input")?;
    }
    if let Some(cpu) = args.pin {
        // Before any thread is started: they all stay there.
        pin_to(cpu).with_context(|| format!("cannot compute on CPU {cpu}"))?;
    }
    if let Some(n_cores) = args.cores {
        device.set_n_units(n_cores);
    }
    let address = match &args.listen {
        Listen::Agent(address) => address,
        Listen::Nvme(address) => return serve_nvme(args, device, address, &stop),
    };
    // It reads its user's own files for that user, whose other workers follow links, too.
    let watch = DecompressingWatch::lines(|line| complain(line));
    let place = DecompressedPlace::of_user();
    let ready = ReadyRoots::of(&args.media, Links::Followed, (place.as_ref(), &watch))?;
    let store = FileStore::of(&ready.roots, Links::Followed)?;
    let config = ServerConfig {
        name: device.name.clone(),
        emulated: true,
        // A device with more cores than this machine can spare is emulated all the same.
        n_workers: args.cores.or(device.n_units()).unwrap_or(u32::MAX).min(spare_cores()),
        n_slots: args.slots.unwrap_or(SLOTS),
    };
    let costs: Box<dyn Costs> = match args.time {
        Time::Functional => Box::new(NoCosts),
        Time::Paced => {
            let pace = args.rate.map_or(Pace::Modelled, Pace::Rate);
            Box::new(Device::new(device, pace, thread_cpu_ns))
        }
    };
    let server = Server::start(config, store, costs).context("cannot start a thread")?;
    let faults = FaultConfig {
        faults: args.faults.clone(),
        expected_batches: args.fault_batches,
        seed: args.seed.unwrap_or(SEED),
        on_death: die,
    };
    // Its models need the order of all jobs, and so one host at a time.
    let server = Mutex::new(Faulty::new(server, faults));
    let door = Door::open(address, Security::default())?;
    stop::in_time(&stop).context("cannot start a thread")?;
    say(format_args!("listening on {}", door.address()))
        .context("cannot say where it listens")?;
    let visits = if args.once { Visits::Once } else { Visits::Always };
    let tell = |news: News<'_>| match news {
        News::Complaint { error, .. } => {
            complain(format_args!("warning: {}", error.with_names(NO_FLAG)));
        }
        News::Came { .. } | News::Left { .. } | News::TurnedAway { .. } => {}
    };
    door.serve(&server, visits, &stop, &tell)?;
    if let Err(error) = door.close() {
        complain(format_args!("warning: {}", error.with_names(NO_FLAG)));
    }
    Ok(())
}

/// Serves NVMe, with the times of the preset's model if they are asked for.
fn serve_nvme(
    args: &Args,
    device: DeviceConfig,
    address: &NvmeAddress,
    stop: &Arc<AtomicBool>,
) -> Result<()> {
    let [DataRoot { name: None, path }] = args.media.as_slice() else {
        bail!("an NVMe device has one medium; give --media once, without a name");
    };
    let media = BlockMedia::open(path)?;
    stop::in_time(stop).context("cannot start a thread")?;
    let cores = args.cores.map_or(spare_cores(), |n| n.min(spare_cores()));
    let modelled = (args.time == Time::Paced).then_some(device);
    let size = (args.memory.unwrap_or(MEMORY_MIB), cores as usize);
    let target = nvme::start(address, media, size, (modelled, args.advertise))?;
    say(format_args!(
        "listening on {}{}/{}",
        nvme::SCHEME,
        target.address(),
        target.name()
    ))
    .context("cannot say where it listens")?;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
    if let Some(own) = target.lateness() {
        say(format_args!(
            "{} commands were answered at their modelled time; {} more than {} us late, {} us on average, \
             {} us at most",
            own.n_answers,
            own.n_late,
            TOLERANCE.as_micros(),
            own.mean_ns() / 1000,
            own.worst_ns / 1000,
        ))
        .context("cannot say how late it was")?;
    }
    Ok(())
}

/// Puts a line on standard output.
fn say(line: impl Display) -> io::Result<()> {
    put(&mut io::stdout().lock(), line)
}

/// Puts a line there. Whoever has closed the other end wants no more, which ends nothing here.
fn put(out: &mut impl Write, line: impl Display) -> io::Result<()> {
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        put => put,
    }
}

/// Puts a line on standard error. If that fails, there is nobody left to tell.
fn complain(line: impl Display) {
    let _ = put(&mut io::stderr().lock(), line);
}

/// Cores for real work: one is left to the thread that answers on time.
fn spare_cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores - 1).unwrap_or(u32::MAX).max(1)
}

/// The fault `die`: gone without a word, socket file and all left behind.
#[allow(clippy::exit, reason = "a sudden end is what was asked for")]
fn die() {
    std::process::exit(DEATH);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(more: &str) -> Result<(), String> {
        let args = "firmware-sim --preset newport --media x".split(' ');
        let args = args.chain(more.split(' '));
        Args::try_parse_from(args).map_err(|e| e.to_string())?.check()
    }

    #[test]
    fn flags_that_would_have_no_effect_are_refused_in_one_line() {
        for (more, expected) in [
            (
                "unix:///x --rate 50 --time functional",
                "--rate 50 has no effect with --time",
            ),
            ("unix:///x --memory 64", "leave out --memory, or listen at nvme-tcp://"),
            (
                "unix:///x --advertise 192.0.2.1",
                "leave out --advertise, or listen at nvme",
            ),
            ("nvme-tcp://[::1]:1 --seed 0", "leave out --seed, or listen at tcp://"),
            ("nvme-tcp://[::1]:1 --fault-batches 4", "leave out --fault-batches, or"),
            ("nvme-tcp://[::1]:1 --slots 4", "leave out --slots, or listen at tcp://"),
            ("nvme-tcp://[::1]:1 --rate 50", "leave out --rate, or listen at tcp://"),
            (
                "nvme-tcp://[::1]:1 --once --fault refuse",
                "leave out --fault and --once, or",
            ),
        ] {
            let why = checked(&format!("--listen {more}")).unwrap_err();
            assert!(why.contains(expected) && why.lines().count() == 1, "{more}: {why}");
        }
    }

    #[test]
    fn flags_that_have_an_effect_are_taken() {
        for more in [
            "unix:///x --rate 50",
            "unix:///x --time functional",
            "unix:///x --seed 7 --slots 8 --fault corrupt@5% --fault-batches 9 --once",
            // As the host starts it.
            "unix:///x --time functional --seed 7 --once --die-with-stdin",
            "nvme-tcp://[::1]:1 --memory 256 --advertise 192.0.2.1 --cores 2",
            "nvme-tcp://[::1]:1 --time functional --pin 0 --constants worst",
        ] {
            assert_eq!(checked(&format!("--listen {more}")), Ok(()), "{more}");
        }
    }

    #[test]
    fn a_closed_pipe_is_nobody_who_wants_more_and_a_full_disk_is_an_error() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        put(&mut writer, "listening").unwrap();
        let mut full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        assert_eq!(put(&mut full, "x").unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
