//! What every device must do with real data, as callable checks over any way to reach one.
//!
//! [`CLAUSES`] lists what is checked; `docs/wire.md` explains it. A [`Suite`] holds a device behind an
//! address to all of it and returns a verdict for each clause, which is what `bothends conform` prints.
//! [`all`] holds one connection to what can be checked over one, and panics where a clause does not hold:
//! that is for tests, which use an [`Exercise`] for other purposes, too. `host.rs` has what an honest host
//! sees, `stranger.rs` what no honest host says. Nothing here is part of a run. (`csd::conformance` has
//! what every *transport* must do.)

#![allow(
    clippy::missing_panics_doc,
    reason = "a check that fails panics: that is its use"
)]

mod clauses;
mod exercise;
mod fault;
mod host;
mod stranger;
mod talk;
mod visit;

use bothends_csd::Transport;
use bothends_slots::{Completion, Job, Slot};

pub use clauses::{CLAUSES, Clause, Placed, Suite, Verdict, place, unplace};
pub use exercise::{Exercise, Kind};
pub use talk::Reach;

use fault::{Checked, Fault};
use visit::Visit;

/// Holds a device that serves `exercise` to every clause that one connection is enough for; its
/// files are gone afterwards.
pub fn all(device: &mut dyn Transport, exercise: &Exercise) {
    let mut visit = kept(Visit::new(device, exercise));
    for clause in &CLAUSES {
        let others = std::slice::from_ref(exercise);
        if let Err(Fault::Broken(why)) = clause.visit(&mut visit, others) {
            panic!("clause {}, {} {why}", clause.number, clause.sentence);
        }
    }
}

/// A slot for one job of an exercise.
#[must_use]
pub fn slot(exercise: &Exercise) -> Slot {
    visit::slot(exercise)
}

/// The answer to what was submitted.
pub fn answer(device: &mut dyn Transport) -> Completion {
    kept(visit::answer(device))
}

/// The bytes of `job`, and its bad rows.
pub fn done(
    device: &mut dyn Transport,
    exercise: &Exercise,
    job: Job,
) -> (Vec<u8>, Vec<u32>) {
    kept(Visit::new(device, exercise).and_then(|mut visit| visit.done(job)))
}

/// Why `job`, which cannot be done, failed.
pub fn failure(device: &mut dyn Transport, exercise: &Exercise, job: Job) -> String {
    kept(Visit::new(device, exercise).and_then(|mut visit| visit.failure(job)))
}

fn kept<T>(checked: Checked<T>) -> T {
    match checked {
        Ok(value) => value,
        Err(Fault::Broken(why) | Fault::NotApplicable(why)) => panic!("{why}"),
    }
}
