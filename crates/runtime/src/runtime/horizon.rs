//! What devices' working horizons get: the slots that each device has, those that it can use
//! at the rates known by now, and where memory is what is missing, the limit that would do.
//!
//! Says it, and changes nothing: who gets how many slots is `runtime/memory.rs`'s, how many a
//! strategy can use `core`'s.

use bothends_core::setting::Setting;

use crate::runtime::host::{Device, Runtime};
use crate::runtime::memory::MOST_PER_DEVICE;

const MIB: usize = 1 << 20;

impl Runtime {
    /// How many slots the device can use; `None` while it or the host has never been timed,
    /// and for a strategy in which nothing that is ready waits for its turn.
    pub(crate) fn slots_needed(&self, device: &Device) -> Option<u32> {
        let (host_ns, own_ns) = self.front_prior_ns.zip(device.prior_ns)?;
        let depth = device.presence.depth();
        let needed = self.config.strategy.whole_buffer(host_ns, own_ns, depth)?;
        Some(needed.min(MOST_PER_DEVICE))
    }

    /// What the horizons of the devices that are there get, in one line; `None` without devices,
    /// or without horizons.
    pub(crate) fn horizon_note(&self) -> Option<String> {
        if !self.config.strategy.has_horizon() {
            return None;
        }
        let here =
            self.devices.iter().filter(|device| device.presence.missing().is_none());
        let here = here.filter(|device| !device.is_vacant());
        let uses: Vec<_> =
            here.map(|d| Use { device: &d.name, needed: self.slots_needed(d) }).collect();
        // Those that may come have slots, too.
        let n_devices = u32::try_from(self.devices.len()).unwrap_or(u32::MAX);
        let limit = |needed| self.sizes.limit_for(needed, n_devices).div_ceil(MIB);
        let available = self.available.map(|bytes| bytes >> 20);
        let memory = (self.config.names)(Setting::Memory);
        let remedies = Remedies { memory, available };
        note(self.room.per_device, &uses, limit, &remedies)
    }
}

/// What one device can use.
#[derive(Debug, Clone, Copy)]
struct Use<'a> {
    device: &'a str,
    needed: Option<u32>,
}

/// What can be done where there are fewer slots than are of use.
#[derive(Debug, Clone, Copy)]
struct Remedies {
    /// What the limit of memory is called.
    memory: &'static str,
    /// MiB that the machine has.
    available: Option<u64>,
}

/// The line for devices with so many slots each; `limit` says how many MiB give so many.
fn note(
    slots: u32,
    uses: &[Use<'_>],
    limit: impl FnOnce(u32) -> usize,
    remedies: &Remedies,
) -> Option<String> {
    let first = uses.first()?.device;
    let (has, timed) = match uses.len() {
        1 => (format!("device {first} has slots for {slots} batches"), "it is"),
        n => (format!("{n} devices have slots for {slots} batches each"), "they are"),
    };
    let known = uses.iter().filter_map(|one| Some((one.needed?, one.device)));
    let Some((needed, device)) = known.max_by_key(|(needed, _)| *needed) else {
        return Some(format!("{has}; how many are of use shows when {timed} timed"));
    };
    let uses = match uses.len() {
        1 => format!("a use for {needed}"),
        _ => format!("{device} a use for {needed}, the most of them"),
    };
    let remedy = match limit(needed) {
        _ if needed <= slots => String::new(),
        mib if remedies.available.is_some_and(|available| mib as u64 > available) => {
            format!("; that would take {mib} MiB, more than there is")
        }
        mib => format!("; {} {mib} would do", remedies.memory),
    };
    Some(format!("{has}, and at the rates known {uses}{remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(slots: u32, needed: &[Option<u32>]) -> String {
        let names = ["sim:newport", "tcp://nas:7070", "tcp://nas:7071"];
        let uses = names.iter().zip(needed);
        let uses: Vec<_> =
            uses.map(|(device, needed)| Use { device, needed: *needed }).collect();
        let remedies = Remedies { memory: "a limit of", available: Some(2000) };
        note(slots, &uses, |needed| 100 * needed as usize, &remedies).unwrap()
    }

    #[test]
    fn one_line_says_what_there_is_and_what_would_do() {
        for (slots, needed, line) in [
            (
                20,
                &[Some(5)][..],
                "device sim:newport has slots for 20 batches, and at the rates known a use for 5",
            ),
            (
                4,
                &[Some(11)][..],
                "device sim:newport has slots for 4 batches, and at the rates known a use for 11; \
                 a limit of 1100 would do",
            ),
            (
                4,
                &[Some(26)][..],
                "device sim:newport has slots for 4 batches, and at the rates known a use for 26; \
                 that would take 2600 MiB, more than there is",
            ),
            (
                20,
                &[None][..],
                "device sim:newport has slots for 20 batches; how many are of use shows when it is timed",
            ),
            (
                4,
                &[Some(3), Some(6), None][..],
                "3 devices have slots for 4 batches each, and at the rates known tcp://nas:7070 a \
                 use for 6, the most of them; a limit of 600 would do",
            ),
            (
                4,
                &[None, None][..],
                "2 devices have slots for 4 batches each; how many are of use shows when they are timed",
            ),
        ] {
            assert_eq!(said(slots, needed), line);
        }
        let remedies = Remedies { memory: "", available: None };
        assert_eq!(note(4, &[], |_| 0, &remedies), None);
    }
}
