//! What a run's figures must not be taken for: those of an emulator that was too slow, of an epoch that was
//! stopped, of a fault that never struck. The same lines stand on the terminal and on the page.

use bothends_figures::{BackResult, EpochResult, InjectedFault, RunResult};

/// What is to be known of an epoch's figures, one line each.
#[must_use]
pub fn epoch_remarks(epoch: &EpochResult) -> Vec<String> {
    let n = epoch.epoch;
    let devices = epoch.back.iter().filter_map(|device| behind(epoch, device));
    let lines = part(epoch).into_iter().chain(devices);
    lines.map(|line| format!("epoch {n}: {line}")).collect()
}

/// What is to be known of the figures of the whole run, one line each.
#[must_use]
pub fn run_remarks(run: &RunResult) -> Vec<String> {
    let stopped = run.stopped.as_ref().map(|by| match by.as_str() {
        "stop_after" => "the run ended early, by --stop-after".to_owned(),
        "asked" => "the run was stopped before its end".to_owned(),
        signal => format!("the run was stopped by {signal} before its end"),
    });
    stopped.into_iter().chain(run.faults.iter().filter_map(never_struck)).collect()
}

/// Of which part of an epoch its figures are, where they are not of all of it.
fn part(epoch: &EpochResult) -> Option<String> {
    let EpochResult { resumed_at, stopped_at, stream_digest, .. } = epoch;
    let has_digests = stream_digest.is_some();
    let digests = |of: &str| match has_digests {
        true => format!("; its digests are {of}"),
        false => String::new(),
    };
    let batches = |n: &u32| format!("{n} {}", if *n == 1 { "batch" } else { "batches" });
    let line = match (resumed_at, stopped_at) {
        (None, None) => return None,
        (None, Some(to)) => {
            let and = if has_digests { "figures and digests" } else { "figures" };
            format!("it was stopped after {}; its {and} are of these alone", batches(to))
        }
        (Some(from), None) => format!(
            "it was resumed after {}, and its figures are of the rest{}",
            batches(from),
            digests("of the whole epoch")
        ),
        (Some(from), Some(to)) => format!(
            "it was resumed after {} and stopped after {to}, and its figures are of those between{}",
            batches(from),
            digests(&format!("of the first {to}"))
        ),
    };
    Some(line)
}

/// An emulator that had not enough CPU time for its model, or does not say.
fn behind(epoch: &EpochResult, device: &BackResult) -> Option<String> {
    let name = &device.device;
    let (Some(late), Some(most_s), Some(all_s), Some(is_behind)) = (
        device.late_completions,
        device.max_lateness_seconds,
        device.lateness_seconds,
        device.is_behind(epoch.seconds),
    ) else {
        return (device.emulated && device.batches > 0).then(|| {
            format!(
                "emulated device {name} does not tell the host whether it kept its model's pace: its figures \
                 are the device's only if its emulator, when it ends, names few late answers"
            )
        });
    };
    let n_made = device.batches.saturating_add(device.wasted).max(late);
    is_behind.then(|| {
        format!(
            "emulated device {name}: {late} of {n_made} batches came later than its model says, by up to {} \
             and by {} together, in {}: this machine is too slow to emulate it, so its figures are not the \
             device's; give the emulator more processors, or choose a slower device",
            time(most_s),
            time(all_s),
            time(epoch.seconds)
        )
    })
}

/// A fault that was to be there and was not.
fn never_struck(it: &InjectedFault) -> Option<String> {
    let InjectedFault { device, fault, struck, after, begun } = it;
    if struck.is_none_or(|n| n > 0) {
        return None;
    }
    let begun = begun.unwrap_or(0);
    let why = match after {
        Some(after) => format!(
            "it strikes after {after} batches of an epoch, and the device began {begun} at most"
        ),
        None => format!("the device began {begun} batches of an epoch at most"),
    };
    Some(format!("fault {fault} of device {device} never struck: {why}"))
}

/// A time in seconds as words: below one second in milliseconds.
fn time(s: f64) -> String {
    match 1e3 * s {
        ms if ms >= 1e3 => format!("{s:.2} s"),
        ms if ms >= 10.0 => format!("{ms:.0} ms"),
        ms => format!("{ms:.2} ms"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::example;

    fn epoch() -> EpochResult {
        let recording = example::recording();
        recording.epochs[1].figures.clone().unwrap()
    }

    #[test]
    fn an_epoch_to_its_end_on_a_fast_machine_needs_no_remark() {
        assert!(epoch_remarks(&epoch()).is_empty());
        let run = example::recording().run.unwrap();
        assert!(run_remarks(&run).is_empty());
    }

    #[test]
    fn a_slow_emulator_is_named_with_times_that_are_not_zero() {
        let mut epoch = epoch();
        epoch.seconds = 2.0;
        let late = |epoch: &mut EpochResult, most_s, all_s| {
            let device = &mut epoch.back[0];
            (device.batches, device.wasted, device.late_completions) = (12, 4, Some(16));
            (device.max_lateness_seconds, device.lateness_seconds) =
                (Some(most_s), Some(all_s));
            epoch_remarks(epoch)
        };
        // One late batch of few is no reason where it came to nothing.
        assert!(late(&mut epoch, 0.002, 0.02).is_empty());
        let said = late(&mut epoch, 0.004, 0.041).concat();
        let figures = "16 of 16 batches came later than its model says, by up to 4.00 ms and by 41 ms together, \
                       in 2.00 s: this machine is too slow";
        assert!(said.starts_with("epoch 0: emulated device sim:newport"), "{said}");
        assert!(said.contains(figures), "{said}");
        let said = late(&mut epoch, 1.5, 3.0).concat();
        assert!(said.contains("by up to 1.50 s and by 3.00 s together"), "{said}");
    }

    #[test]
    fn an_emulator_that_says_nothing_of_its_pace_is_not_taken_to_keep_it() {
        let mut epoch = epoch();
        let device = &mut epoch.back[0];
        (device.late_completions, device.lateness_seconds) = (None, None);
        let said = epoch_remarks(&epoch).concat();
        assert!(said.contains("does not tell the host whether it kept"), "{said}");
        epoch.back[0].emulated = false;
        assert!(epoch_remarks(&epoch).is_empty(), "a device has no model");
    }

    #[test]
    fn a_part_of_an_epoch_is_said_to_be_one() {
        let mut epoch = epoch();
        let mut said = |resumed_at, stopped_at| {
            (epoch.resumed_at, epoch.stopped_at) = (resumed_at, stopped_at);
            epoch_remarks(&epoch).concat()
        };
        assert_eq!(
            said(None, Some(1)),
            "epoch 0: it was stopped after 1 batch; its figures and digests are of these alone"
        );
        assert_eq!(
            said(Some(9), None),
            "epoch 0: it was resumed after 9 batches, and its figures are of the rest; its digests are of the \
             whole epoch"
        );
        assert_eq!(
            said(Some(9), Some(20)),
            "epoch 0: it was resumed after 9 batches and stopped after 20, and its figures are of those between; \
             its digests are of the first 20"
        );
        let mut run = example::recording().run.unwrap();
        run.stopped = Some("SIGINT".to_owned());
        assert_eq!(run_remarks(&run), ["the run was stopped by SIGINT before its end"]);
    }

    #[test]
    fn a_fault_that_never_struck_is_named_with_the_reason() {
        let mut run = example::recording().run.unwrap();
        let fault = |fault: &str, struck, after| -> InjectedFault {
            let fault = json!({"device": "sim:newport", "fault": fault, "struck": struck,
                "after": after, "begun": 8});
            serde_json::from_value(fault).unwrap()
        };
        run.faults = vec![
            fault("die@50%", Some(0), Some(23)),
            fault("lie@1%", Some(0), None),
            fault("late@3%", Some(1), None),
            fault("stall@50%:1", None, Some(23)),
        ];
        assert_eq!(
            run_remarks(&run),
            [
                "fault die@50% of device sim:newport never struck: it strikes after 23 batches of an epoch, and \
                 the device began 8 at most",
                "fault lie@1% of device sim:newport never struck: the device began 8 batches of an epoch at most",
            ]
        );
    }
}
