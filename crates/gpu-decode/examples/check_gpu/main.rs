//! What a machine's GPU does with the kernels, the copies and the producer: right, and how fast.
//!
//! ```text
//! check_gpu --data DIR [--store DIR] [--odd DIR] [--ordinal N] [--quick]   on a GPU
//! check_gpu --data DIR --rates [--ptx FILE]      how fast kernels are and nothing else, with other kernels than its own
//! check_gpu --data DIR --rates N                 only the Nth rate of decoding (8: of the finish), for profilers
//! check_gpu --data DIR --twin                    what is right, on the kernels' CPU twin
//! ```
//!
//! `scripts/check-gpu` runs it with all else that is to be checked. It writes one JSON object a line to
//! standard output, one for each check; what it is doing goes to standard error. It ends with 0 where all
//! that is right or wrong is right, 1 where something is not, 2 for bad arguments, and 3 where nothing
//! was checked, since there is no GPU (or, for the twin, no C++ compiler). A rate below its bar is no
//! error: the line says so.
//!
//! `device` is the GPU with memory and streams, `pictures` crops of the data and what the host makes of
//! them, `equal` what is right, `rates` how fast.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own, whose output is its result"
)]
#![allow(clippy::cast_precision_loss, reason = "figures")]
#![allow(unreachable_pub, reason = "its modules are its own")]

mod device;
mod equal;
mod pictures;
mod rates;
mod said;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use bothends_gpu::GpuError;
use bothends_gpu::driver::Driver;
use bothends_gpu::driver::cuda::Cuda;
use bothends_gpu::kernels::PTX;
use bothends_gpu::twin::Twin;
use bothends_io::Direct;

use device::Device;
use pictures::Pictures;
use said::Said;

/// What goes wrong with a check that cannot be done.
type Failed = Box<dyn std::error::Error>;

const USAGE: &str = "usage: check_gpu --data DIR [--store DIR] [--odd DIR] [--ordinal N] \
     [--quick] [--twin] [--rates [N]] [--ptx FILE]";

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// On a GPU.
    Whole,
    /// On a GPU, to see that everything works.
    Quick,
    /// On the CPU twin: small, to see what is right and that everything runs.
    Twin,
}

#[derive(Debug)]
struct Args {
    data: PathBuf,
    store: Option<PathBuf>,
    /// JPEGs of unusual sizes and kinds: only their samples are looked at.
    odd: Option<PathBuf>,
    ordinal: u32,
    extent: Extent,
    /// Whether rates of kernels are all that is measured; the only one of decoding, if not all.
    rates: Option<Option<usize>>,
    /// Kernels in place of its own.
    ptx: Option<PathBuf>,
}

fn args() -> Option<Args> {
    let (mut data, mut store, mut odd, mut ordinal) = (None, None, None, 0);
    let (mut extent, mut rates, mut ptx) = (Extent::Whole, None, None);
    let mut words = std::env::args().skip(1).peekable();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--data" => data = words.next().map(PathBuf::from),
            "--store" => store = words.next().map(PathBuf::from),
            "--odd" => odd = words.next().map(PathBuf::from),
            "--ordinal" => ordinal = words.next()?.parse().ok()?,
            "--quick" => extent = Extent::Quick,
            "--rates" => {
                let which = words.next_if(|word| !word.starts_with("--"));
                rates = Some(which.map(|word| word.parse()).transpose().ok()?);
            }
            "--ptx" => ptx = Some(words.next()?.into()),
            "--twin" => extent = Extent::Twin,
            _ => return None,
        }
    }
    Some(Args { data: data?, store, odd, ordinal, extent, rates, ptx })
}

fn main() -> ExitCode {
    let Some(args) = args() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let ptx = match args.ptx.as_ref().map(std::fs::read_to_string).transpose() {
        Ok(ptx) => ptx,
        Err(error) => {
            eprintln!("check_gpu: cannot read the kernels: {error}");
            return ExitCode::from(2);
        }
    };
    let driver = match open(&args, ptx.as_deref().unwrap_or(PTX)) {
        Ok(driver) => driver,
        Err(error) => {
            eprintln!("nothing was checked: {error}");
            return ExitCode::from(3);
        }
    };
    let mut said = Said::new(args.extent);
    if let Err(error) = check(&args, driver, &mut said) {
        eprintln!("check_gpu: {error}");
        return ExitCode::from(1);
    }
    ExitCode::from(u8::from(said.is_anything_wrong()))
}

fn open(args: &Args, ptx: &str) -> Result<Arc<dyn Driver>, GpuError> {
    Ok(match args.extent {
        Extent::Twin => Arc::new(Twin::compiled()?),
        Extent::Whole | Extent::Quick => Arc::new(Cuda::open(args.ordinal, ptx)?),
    })
}

fn check(args: &Args, driver: Arc<dyn Driver>, said: &mut Said) -> Result<(), Failed> {
    said.card(driver.card());
    let device = Device::new(driver)?;
    if let Some(which) = args.rates {
        let pictures = Pictures::read(&args.data, args.extent)?;
        if which.is_none_or(|which| which >= rates::N_DECODING) {
            rates::finish(&device, args.extent, said)?;
        }
        return rates::decoding(&device, (&pictures, which), args.extent, said);
    }
    equal::driver(&device, said);
    equal::staging(&device, args.extent, said)?;
    let pictures = Pictures::read(&args.data, args.extent)?;
    equal::kernels(&device, ("the data", &pictures), args.extent, said)?;
    if let Some(odd) = &args.odd {
        let odd = Pictures::read(odd, args.extent)?;
        equal::kernels(&device, ("odd files", &odd), args.extent, said)?;
    }
    equal::damage(&device, &pictures, args.extent, said)?;
    rates::copies(&device, args.extent, said)?;
    rates::finish(&device, args.extent, said)?;
    rates::decoding(&device, (&pictures, None), args.extent, said)?;
    let store = args.store.as_ref();
    let folders = [
        ("JPEG files", Some(&args.data), Direct::Off),
        ("store", store, Direct::Off),
        ("store, past the page cache", store, Direct::Auto),
    ];
    for (what, folder, direct) in folders {
        if let Some(folder) = folder {
            rates::prong(&device, (what, folder, direct), args.extent, said)?;
        }
    }
    Ok(())
}
