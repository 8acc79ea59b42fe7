//! `bothends doctor`: what this machine has for a run, and how fast the host alone is.

use std::fs;
use std::time::Duration;

use bothends_core::recipe::Recipe;
use bothends_runtime::{Machine, Observer, RunConfig, Runtime};

use crate::args::DoctorArgs;
use crate::inspect::looking;
use crate::progress::Bar;
use crate::{Failed, say};

/// Prints one finding per line.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<(), Failed> {
    let machine = Machine::read();
    say::line(&format!("machine     {}", machine.summary()));
    say::line(&format!("io_uring    {}", machine.io_uring));
    say::line(&format!("emulator    {}", machine.firmware_sim));
    if let Ok(cgroup) = fs::read_to_string("/sys/fs/cgroup/cpu.max") {
        say::line(&format!("cpu limit   {}", cgroup.trim()));
    }
    say::line(
        "energy      no meter in this build; energy figures are modelled or absent",
    );
    let Some(data) = &args.data else {
        say::line("data        none given; --data PATH measures the host on it");
        return Ok(());
    };
    for line in bothends_runtime::survey(data)? {
        say::line(&format!("data        {line}"));
    }
    let recipe = Recipe::builtin("imagenet-train").ok_or_else(|| {
        anyhow::anyhow!("the recipe imagenet-train is missing from this build")
    })?;
    let mut bar = Bar::new();
    for workers in [1, machine.cores] {
        bar.phase(&format!("measuring the host alone with {workers} workers"));
        let config = RunConfig { workers, ..looking(data.clone(), recipe.clone()) };
        let rate = Runtime::open(config)?.measure_front(Duration::from_secs(2))?;
        bar.clear();
        let rate =
            rate.map_or("too slow to say".to_owned(), |r| format!("{r:.0} images/s"));
        say::line(&format!(
            "host alone  {rate} with {workers} workers (measured, imagenet-train)"
        ));
    }
    Ok(())
}
