//! The reader thread, with the test in place of the workers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_core::recipe::Recipe;
use bothends_slots::{Job, JobId, Producer, Ring, RingConfig};
use crossbeam::channel::{bounded, unbounded};

use super::residency::{Guess, Residency};
use super::*;
use crate::collect::wakeup::bell;
use crate::config::run::RunConfig;
use crate::make::front::{Front, RowLens};
use crate::read::supplied::{Supplied, SuppliedFile};
use crate::threads::times::{Ends, ThreadTimes};

const N_ROWS: u32 = 60;
const ROW_BYTES: usize = 10;

/// Records in one file, none of which follows another.
fn source(root: &std::path::Path) -> Arc<Source> {
    std::fs::write(root.join("shard"), vec![7; 100_000]).unwrap();
    let file = |n: u32| SuppliedFile {
        path: "shard",
        extent: Some((u64::from(n) * 1000, 500)),
        label: 0,
    };
    let supplied = Supplied::files(root, (0..N_ROWS).map(file)).unwrap();
    let recipe = Recipe::builtin("imagenet-eval").unwrap();
    let config =
        RunConfig { supplied: Some(supplied), ..RunConfig::new(root.to_owned(), recipe) };
    Arc::new(Source::open(&config).unwrap())
}

/// Asks for one batch of all rows.
fn ask(jobs: Sender<FrontJob>) -> (Front, Ring) {
    let mut front = Front::new(jobs, bell().0, RowLens::Every(ROW_BYTES), 1, 2);
    let slot_bytes = N_ROWS as usize * ROW_BYTES;
    let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes }).unwrap();
    let samples = (0..N_ROWS).map(|n| SampleId(n.into())).collect();
    let (id, epoch, batch) = (JobId(0), EpochIdx(0), BatchIdx(0));
    let job = Job { id, epoch, batch, samples, need_ns: 0 };
    front.submit(job, ring.take(Duration::from_secs(60)).unwrap()).unwrap();
    (front, ring)
}

/// Which rows the reader passes on, in order, and whether it has read them, where the one worker finds all of them but
/// the tenth, which it gives back.
fn passed_on() -> Vec<(u32, bool)> {
    let folder = tempfile::tempdir().unwrap();
    let (jobs_in, jobs) = bounded(2);
    let (tasks_in, tasks) = bounded(1);
    let (missed_in, missed) = unbounded();
    let residency = Arc::new(Residency::default());
    let stop = Stop::default();
    let stage = ReadStage {
        source: source(folder.path()),
        reader: bothends_io::open_reader(&Default::default()).unwrap(),
        jobs,
        tasks: tasks_in,
        backlog: Arc::new(Backlog::new(1, 1000, 0)),
        guess: Guess::new(),
        n_ahead: usize::MAX,
        residency: Arc::clone(&residency),
        missed,
        meter: ThreadTimes::new(0).meter(Ends::Front),
        notes: bounded(0).0,
        stop: stop.clone(),
    };
    let reader = std::thread::spawn(move || stage.run());
    let _asked = ask(jobs_in);
    let (mut passed, mut n_resident) = (Vec::new(), 0);
    let mut left = VecDeque::new();
    while passed.len() <= N_ROWS as usize {
        let Ok(task) = tasks.recv_timeout(Duration::from_secs(60)) else { break };
        let turn = match task.record {
            Arrival::Resident(turn) => Some(turn),
            Arrival::Read(_) | Arrival::Cached(_) | Arrival::Asked => None,
        };
        passed.push((task.row, turn.is_none()));
        n_resident += u32::from(turn.is_some());
        match turn {
            Some(_) if n_resident == 10 => missed_in.send(task).unwrap(),
            Some(turn) => {
                residency.found_for_test(turn);
                left.push_back(task);
            }
            None => left.push_back(task),
        }
    }
    stop.set();
    left.into_iter().for_each(Task::leave_out);
    drop(tasks);
    reader.join().unwrap();
    passed
}

#[test]
fn a_row_that_comes_back_is_read_before_all_others_are_handed_out() {
    let passed = passed_on();
    let n_rows = N_ROWS as usize;
    assert_eq!(passed.len(), n_rows + 1, "{passed:?}");
    let (row, _) = *passed.iter().filter(|(_, is_read)| !is_read).nth(9).unwrap();
    let times: Vec<_> = (0..passed.len()).filter(|&nth| passed[nth].0 == row).collect();
    let [first, second] = times[..] else { panic!("{times:?}") };
    assert!(passed[second].1, "the reader has read it");
    assert!(second < first + 10 && second < n_rows - 10, "{passed:?}");
    let n_handed_out = passed.iter().filter(|(_, is_read)| !is_read).count();
    assert!(n_handed_out > 30, "{passed:?}");
}

#[test]
fn a_worker_is_handed_two_long_records_and_the_next_once_one_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let (jobs_in, jobs) = bounded(2);
    let (tasks_in, tasks) = unbounded();
    // Without a way back the reader ends.
    let (_missed_in, missed) = unbounded();
    let stop = Stop::default();
    let stage = ReadStage {
        source: source(folder.path()),
        reader: bothends_io::open_reader(&Default::default()).unwrap(),
        jobs,
        tasks: tasks_in,
        backlog: Arc::new(Backlog::new(1, 499, 0)),
        guess: Guess::never(),
        n_ahead: usize::MAX,
        residency: Arc::new(Residency::default()),
        missed,
        meter: ThreadTimes::new(0).meter(Ends::Front),
        notes: bounded(0).0,
        stop: stop.clone(),
    };
    let reader = std::thread::spawn(move || stage.run());
    let _asked = ask(jobs_in);
    let next = || tasks.recv_timeout(Duration::from_secs(60)).unwrap();
    let mut held = VecDeque::from([next(), next()]);
    for _ in 2..N_ROWS {
        assert!(tasks.is_empty());
        held.pop_front().unwrap().leave_out();
        held.push_back(next());
    }
    assert!(held.iter().all(|task| task.record_bytes() == 500));
    stop.set();
    held.into_iter().for_each(Task::leave_out);
    reader.join().unwrap();
}
