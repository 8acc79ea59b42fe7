//! Promises 2 and 3: the same bytes and, with `ordered`, the same stream, whoever makes it.
//!
//! Workers × devices × readers × transports × resumption, on generated images, and a smaller
//! set on real ones where they are.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use bothends_core::tensor::{Dtype, Layout, Output};
use bothends_runtime::{
    DriveConfig, EpochResult, Loader, Observer, Progress, ReaderKind, Runtime, drive,
};
use bothends_tests::attempts::until_a_device_takes_part;
use bothends_tests::{
    N_GENERATED, Setup, assert_whole, generated, one_epoch, programs, real_images,
};

/// One device, and three of different speeds, over one kind of transport.
fn device_sets(via: &str) -> Vec<Vec<String>> {
    let sim = |rate: u32| format!("sim:ideal,rate={rate},via={via}");
    match via {
        "loopback" => vec![vec![via.to_owned()], vec![via.to_owned(); 3]],
        _ => vec![vec![sim(300)], vec![sim(400), sim(150), sim(60)]],
    }
}

fn matrix(data: &Path, n: u64, workers: &[u32]) -> Result<()> {
    programs::program("firmware-sim")?;
    let reference = Setup { strategy: "cpu", ..Setup::new(data) }.run()?;
    assert_whole(&reference, n)?;
    let mut sets = vec![Vec::new()];
    sets.extend(["loopback", "unix", "spool"].iter().flat_map(|via| device_sets(via)));
    for &workers in workers {
        for reader in [ReaderKind::Uring, ReaderKind::Pread] {
            for devices in &sets {
                let devices = devices.clone();
                let setup = Setup { workers, reader, devices, ..Setup::new(data) };
                let makes = setup.devices.iter().any(|d| d == "loopback");
                let run = || -> Result<EpochResult> {
                    let epoch = setup.run()?;
                    assert_whole(&epoch, n)?;
                    let digest = &reference.stream_digest;
                    ensure!(epoch.stream_digest == *digest, "another stream");
                    let digest = &reference.content_digest;
                    ensure!(epoch.content_digest == *digest, "other samples");
                    Ok(epoch)
                };
                let ran = match makes {
                    true => until_a_device_takes_part(run),
                    false => run(),
                };
                ran.with_context(|| format!("{setup:?}"))?;
            }
        }
    }
    Ok(())
}

#[test]
fn ordered_is_one_stream_whoever_makes_it() -> Result<()> {
    matrix(&generated()?, u64::from(N_GENERATED), &[1, 2, 4])
}

#[test]
fn ordered_is_one_stream_on_real_images() -> Result<()> {
    match real_images("ordered_is_one_stream_on_real_images")? {
        Some(data) => matrix(&data, 500, &[2]),
        None => Ok(()),
    }
}

/// What an epoch is run for changes who makes a batch, and nothing else.
#[test]
fn the_objective_does_not_change_the_stream() -> Result<()> {
    programs::program("firmware-sim")?;
    let data = generated()?;
    let reference = Setup { strategy: "cpu", ..Setup::new(&data) }.run()?;
    for objective in ["energy", "host-cpu-cap=60"] {
        for strategy in ["ordered", "relaxed"] {
            let devices = vec!["sim:ideal,rate=300".to_owned()];
            let setup = Setup { objective, strategy, devices, ..Setup::new(&data) };
            let epoch = setup.run().with_context(|| format!("{setup:?}"))?;
            assert_whole(&epoch, u64::from(N_GENERATED))?;
            ensure!(epoch.content_digest == reference.content_digest, "{setup:?}");
            if strategy == "ordered" {
                ensure!(epoch.stream_digest == reference.stream_digest, "{setup:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_other_strategies_deliver_the_same_content() -> Result<()> {
    programs::program("firmware-sim")?;
    let data = generated()?;
    let reference = Setup { strategy: "cpu", ..Setup::new(&data) }.run()?;
    for strategy in ["mte", "wrr", "relaxed", "csd"] {
        for via in ["loopback", "unix", "spool"] {
            for devices in device_sets(via) {
                // Three times the data, so that `mte` gets past its calibration.
                let setup = Setup { strategy, devices, ..Setup::new(&data) };
                let epoch = setup.run().with_context(|| format!("{setup:?}"))?;
                assert_whole(&epoch, u64::from(N_GENERATED))?;
                ensure!(epoch.content_digest == reference.content_digest, "{setup:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_run_stopped_anywhere_goes_on_to_the_same_digest() -> Result<()> {
    programs::program("firmware-sim")?;
    let data = generated()?;
    let whole = Setup::new(&data).run()?;
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("state.json");
    let one = device_sets("unix").remove(0);
    let three = device_sets("unix").remove(1);
    let cases = [
        (1, 2, Vec::new(), three.clone()),
        (4, 1, one.clone(), Vec::new()),
        (7, 4, three, one.clone()),
        (12, 2, one, vec!["loopback".to_owned()]),
    ];
    for (stop_after, workers, before, after) in cases {
        let first = Setup {
            devices: before,
            stop_after: Some(stop_after),
            checkpoint: Some(state.clone()),
            ..Setup::new(&data)
        };
        let stopped = first.run()?;
        ensure!(
            stopped.batches == stop_after && stopped.stream_digest != whole.stream_digest
        );
        ensure!(
            std::fs::metadata(&state)?.len() <= 1024,
            "the state is larger than 1 kB"
        );
        let second = Setup {
            devices: after,
            workers,
            resume: Some(state.clone()),
            ..Setup::new(&data)
        };
        let resumed = second.run().with_context(|| format!("{second:?}"))?;
        ensure!(stopped.samples + resumed.samples == u64::from(N_GENERATED));
        ensure!(resumed.stream_digest == whole.stream_digest, "{second:?}");
        ensure!(resumed.content_digest == whole.content_digest, "{second:?}");
    }
    Ok(())
}

/// Notes of a run.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn phase(&mut self, _: &str) {}
    fn batch(&mut self, _: Progress) {}
    fn note(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

/// A digest over bytes of two forms, or of two ranks, is nobody's.
#[test]
fn digests_over_other_bytes_are_not_continued() -> Result<()> {
    let data = generated()?;
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("state.json");
    let first = Setup {
        stop_after: Some(4),
        checkpoint: Some(state.clone()),
        ..Setup::new(&data)
    };
    first.run()?;
    let planes = Output { dtype: Dtype::U8, layout: Layout::Nchw };
    let floats = Output { dtype: Dtype::F32, layout: Layout::Nhwc };
    for (output, rank) in [
        (planes, [0, 1]),
        (floats, [0, 1]),
        (first.output, [0, 2]),
        (first.output, [1, 2]),
    ] {
        let other = Setup { output, rank, epochs: 2, ..Setup::new(&data) };
        let whole = other.drive()?;
        let mut notes = Notes::default();
        let resume = Some(state.clone());
        let resumed = Setup { resume, ..other.clone() }.watched(&mut notes)?;
        let [begun, next] = &resumed.epochs[..] else { bail!("two epochs: {other:?}") };
        ensure!(begun.stream_digest.is_none(), "{other:?}: {begun:?}");
        ensure!(begun.content_digest.is_none(), "{other:?}: {begun:?}");
        ensure!(next.stream_digest == whole.epochs[1].stream_digest, "{other:?}");
        let wanted = "epoch 0: it has no digests, as those in the state are over other bytes; to continue them, \
                      use the output type, layout, fields, rank and number of ranks of that run";
        ensure!(notes.0.iter().any(|note| note == wanted), "{other:?}: {:?}", notes.0);
    }
    Ok(())
}

/// What a run without digests delivered is missing in those of the run before it.
#[test]
fn digests_with_a_gap_are_not_continued() -> Result<()> {
    let data = generated()?;
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("state.json");
    let part = |digest, resume: bool| DriveConfig {
        digest,
        stop_after: Some(2),
        checkpoint: Some(state.clone()),
        resume: resume.then(|| state.clone()),
        ..one_epoch()
    };
    let config = Setup::new(&data).config()?;
    let run = |how: &DriveConfig, notes: &mut Notes| {
        let runtime = Runtime::open(config.clone())?;
        let result = drive(&mut Loader::over(runtime), how, notes)?;
        anyhow::Ok(result.epochs.last().context("an epoch")?.stream_digest.clone())
    };
    let mut notes = Notes::default();
    ensure!(run(&part(true, false), &mut notes)?.is_some());
    ensure!(run(&part(false, true), &mut notes)?.is_none());
    ensure!(notes.0.is_empty(), "{:?}", notes.0);
    ensure!(run(&part(true, true), &mut notes)?.is_none(), "a gap of two batches");
    let wanted =
        "epoch 0: it has no digests, as the state is of a run without digests".to_owned();
    ensure!(notes.0 == [wanted], "{:?}", notes.0);
    Ok(())
}

#[test]
fn strategies_without_order_resume_exactly_once_too() -> Result<()> {
    programs::program("firmware-sim")?;
    let data = generated()?;
    let whole = Setup::new(&data).run()?;
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("state.json");
    for strategy in ["relaxed", "wrr", "mte", "csd", "cpu"] {
        let devices =
            if strategy == "cpu" { vec![] } else { device_sets("unix").remove(0) };
        let first = Setup {
            strategy,
            devices: devices.clone(),
            stop_after: Some(5),
            checkpoint: Some(state.clone()),
            ..Setup::new(&data)
        };
        let stopped = first.run().with_context(|| format!("{first:?}"))?;
        let second = Setup {
            strategy,
            devices,
            resume: Some(state.clone()),
            workers: 2,
            ..Setup::new(&data)
        };
        let resumed = second.run().with_context(|| format!("{second:?}"))?;
        ensure!(
            stopped.samples + resumed.samples == u64::from(N_GENERATED),
            "{strategy}"
        );
        ensure!(resumed.content_digest == whole.content_digest, "{strategy}");
    }
    Ok(())
}

#[test]
fn an_audited_device_that_is_honest_passes() -> Result<()> {
    let data = generated()?;
    let devices = vec!["loopback".to_owned()];
    let setup =
        Setup { devices, audit_percent: 100, strategy: "csd", ..Setup::new(&data) };
    let epoch = setup.run()?;
    ensure!(epoch.audited > 0, "nothing was audited");
    Ok(())
}

/// A device that is still busy with a batch when an epoch ends answers in the next one.
#[test]
fn a_late_answer_is_not_taken_for_a_batch_of_the_next_epoch() -> Result<()> {
    programs::program("firmware-sim")?;
    let data = generated()?;
    let alone = Setup { strategy: "cpu", epochs: 6, batch_size: 17, ..Setup::new(&data) };
    let reference = alone.drive()?;
    for rate in ["0.05x", "0.1x", "0.15x"] {
        let devices = vec![format!("sim:ideal,rate={rate}")];
        let setup = Setup { strategy: "ordered", workers: 2, devices, ..alone.clone() };
        let result = setup.drive().with_context(|| format!("{setup:?}"))?;
        for (epoch, reference) in result.epochs.iter().zip(&reference.epochs) {
            ensure!(epoch.stream_digest == reference.stream_digest, "{setup:?}");
        }
    }
    Ok(())
}

/// What was ahead of the consumer counted as the device's.
#[test]
fn a_run_that_stops_early_counts_the_batches_it_delivered_and_no_others() -> Result<()> {
    let data = generated()?;
    for strategy in ["csd", "relaxed"] {
        let devices = vec!["loopback".to_owned()];
        let batch_size = 2;
        let setup = Setup { strategy, devices, batch_size, ..Setup::new(&data) };
        let epoch = Setup { stop_after: Some(5), ..setup }.run()?;
        let back: u32 = epoch.back.iter().map(|device| device.batches).sum();
        ensure!(epoch.batches == 5, "{strategy}: {}", epoch.batches);
        let front = epoch.front.batches;
        ensure!(front + back == 5, "{strategy}: {front} and {back}");
    }
    Ok(())
}
