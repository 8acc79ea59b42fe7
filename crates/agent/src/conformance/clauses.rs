//! The clauses: what a device must do, sentence by sentence, and the check of each. `docs/wire.md`
//! has the same list.
//!
//! A [`Suite`] tries them all, with new connections for each.

use std::io;
use std::path::Path;

use super::exercise::{Exercise, Kind};
use super::fault::{Checked, Fault, not_applicable};
use super::talk::Reach;
use super::visit::Visit;
use super::{host, stranger};

/// The folder below the data root that the files of a suite are in.
const FOLDER: &str = "bothends-conform";

/// What a device must do.
#[derive(Debug)]
pub struct Clause {
    /// Its number.
    pub number: &'static str,
    /// What it says.
    pub sentence: &'static str,
    pub(super) check: Check,
}

/// How a clause is tried.
#[derive(Debug)]
pub(super) enum Check {
    /// As an honest host.
    Host(fn(&mut Visit<'_>) -> Checked),
    /// As an honest host that makes all samples of such a data set.
    Samples(Kind),
    /// As an honest host, while the device's files change.
    Files(fn(&mut Visit<'_>) -> Checked),
    /// As what no honest host is.
    Stranger(stranger::Check),
}

use Check::{Files, Host, Samples, Stranger};

const fn clause(number: &'static str, sentence: &'static str, check: Check) -> Clause {
    Clause { number, sentence, check }
}

/// All of them, in the order in which they are tried.
pub const CLAUSES: [Clause; 40] = [
    clause(
        "1.1",
        "Hello is answered with what the device is and can do.",
        Host(host::hello),
    ),
    clause(
        "1.2",
        "A greeting of another protocol version is refused with a reason.",
        Stranger(stranger::another_version),
    ),
    clause(
        "1.3",
        "A first message that is not a greeting ends the connection.",
        Stranger(stranger::no_greeting),
    ),
    clause(
        "1.4",
        "A damaged header ends the connection.",
        Stranger(stranger::damaged_header),
    ),
    clause(
        "1.5",
        "A damaged body ends the connection.",
        Stranger(stranger::damaged_body),
    ),
    clause(
        "1.6",
        "A header that announces too large a body ends the connection.",
        Stranger(stranger::endless_body),
    ),
    clause(
        "1.7",
        "A message that only a device sends ends the connection.",
        Stranger(stranger::message_of_a_device),
    ),
    clause(
        "1.8",
        "A host without the key is not admitted.",
        Stranger(stranger::without_the_key),
    ),
    clause(
        "1.9",
        "A second host is served, or told at once to try again later.",
        Stranger(stranger::second_host),
    ),
    clause(
        "1.10",
        "After a host has vanished, the next one is served.",
        Stranger(stranger::vanished_host),
    ),
    clause(
        "2.1",
        "A session whose recipe hash is wrong is refused.",
        Host(host::another_recipe),
    ),
    clause(
        "2.2",
        "A session with an unreadable recipe is refused.",
        Host(host::unreadable_recipe),
    ),
    clause(
        "2.3",
        "A session with an unreadable manifest is refused.",
        Host(host::unreadable_manifest),
    ),
    clause(
        "2.4",
        "A session whose sample size is wrong is refused.",
        Host(host::other_sample_bytes),
    ),
    clause(
        "2.5",
        "A session with a path outside the data root is refused.",
        Host(host::path_out_of_the_root),
    ),
    clause(
        "2.6",
        "A session with a missing file is refused, naming the file.",
        Host(host::absent_file),
    ),
    clause(
        "2.7",
        "After a refusal, another session can be opened and is served.",
        Host(host::after_a_refusal),
    ),
    clause(
        "2.8",
        "Every session has its own number.",
        Stranger(stranger::sessions_have_numbers),
    ),
    clause(
        "2.9",
        "Messages for another session are ignored.",
        Stranger(stranger::other_sessions),
    ),
    clause(
        "2.10",
        "A new session does not answer jobs of the previous one.",
        Stranger(stranger::opened_again),
    ),
    clause(
        "3.1",
        "Samples of opaque records are correct to the byte.",
        Samples(Kind::Opaque),
    ),
    clause(
        "3.2",
        "Samples of planar records are correct to the byte.",
        Samples(Kind::Planar),
    ),
    clause(
        "3.3",
        "Samples of image files are correct to the byte.",
        Samples(Kind::Images),
    ),
    clause(
        "3.4",
        "A job without samples succeeds and returns no bytes.",
        Host(host::empty_job),
    ),
    clause(
        "3.5",
        "A job as large as the session's largest batch succeeds.",
        Host(host::largest_job),
    ),
    clause(
        "3.6",
        "A larger job fails, and no other job fails with it.",
        Stranger(stranger::larger_job),
    ),
    clause(
        "3.7",
        "Bad rows are listed in ascending order, and are zero.",
        Host(host::bad_rows),
    ),
    clause(
        "3.8",
        "A job fails if none of its records can be read.",
        Host(host::nothing_readable),
    ),
    clause(
        "3.9",
        "If all slots are in use, each job is answered once.",
        Host(host::all_slots),
    ),
    clause(
        "3.10",
        "Jobs beyond the slots wait, and each is answered once.",
        Stranger(stranger::waiting_jobs),
    ),
    clause(
        "4.1",
        "A revoked job is answered once, and other jobs are unaffected.",
        Host(host::revoked),
    ),
    clause(
        "4.2",
        "Revoking a job that is not in progress has no effect.",
        Stranger(stranger::unknown_revoke),
    ),
    clause(
        "5.1",
        "Digests of records are computed from the device's own bytes.",
        Host(host::records),
    ),
    clause(
        "5.2",
        "A digest of a sample that is not in the manifest is refused.",
        Host(host::no_such_record),
    ),
    clause("6.1", "Statistics count jobs and samples.", Host(host::statistics)),
    clause(
        "6.2",
        "Statistics need no session.",
        Stranger(stranger::stats_without_a_session),
    ),
    clause(
        "6.3",
        "Ping is answered with and without a session.",
        Stranger(stranger::ping_in_every_state),
    ),
    clause(
        "6.4",
        "Ping is answered while jobs are being made.",
        Stranger(stranger::ping_at_work),
    ),
    clause(
        "7.1",
        "A replaced file is read again in the next session.",
        Files(host::replaced_file),
    ),
    // Afterwards the files are gone.
    clause(
        "7.2",
        "A session is refused if its files are gone.",
        Files(host::without_its_files),
    ),
];

/// Whether a clause holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Passed,
    /// It does not: what the device does.
    Failed(String),
    /// It is about something that the device does not have, or that cannot be tried: why.
    NotApplicable(String),
}

impl From<Checked> for Verdict {
    fn from(checked: Checked) -> Self {
        match checked {
            Ok(()) => Self::Passed,
            Err(Fault::Broken(why)) => Self::Failed(why),
            Err(Fault::NotApplicable(why)) => Self::NotApplicable(why),
        }
    }
}

/// Whose the files are that the device serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// They were written where the device reads them, and may be changed there.
    Here,
    /// Somebody has copied them to where the device is.
    Copied,
}

/// The clauses, for one device.
#[derive(Debug)]
pub struct Suite {
    reach: Reach,
    exercises: [Exercise; 3],
    placed: Placed,
}

impl Suite {
    /// Of the device at `reach`, which serves the folder `root` or one with the same files.
    #[must_use]
    pub fn new(reach: Reach, root: &Path, placed: Placed) -> Self {
        Self { reach, exercises: exercises(root), placed }
    }

    /// Tries every clause, and says of each whether it holds. Blocks for up to a minute where a
    /// device keeps silent; each wait ends.
    ///
    /// # Errors
    /// The device opens no session at all, and why.
    pub fn run(&self, each: &mut dyn FnMut(&Clause, Verdict)) -> Result<(), String> {
        let base = self.base()?;
        for clause in &CLAUSES {
            each(clause, self.verdict(clause, base).into());
        }
        Ok(())
    }

    /// The data set for clauses that are about any: with random numbers, if the device can.
    fn base(&self) -> Result<&Exercise, String> {
        let [opaque, planar, images] = &self.exercises;
        let mut why = String::new();
        for exercise in [planar, opaque, images] {
            match self.opens(exercise) {
                Ok(()) => return Ok(exercise),
                Err(Fault::Broken(reason) | Fault::NotApplicable(reason)) => why = reason,
            }
        }
        Err(why)
    }

    fn opens(&self, exercise: &Exercise) -> Checked {
        let mut device = self.reach.connect()?;
        Visit::new(&mut *device, exercise)?.open_if_it_can()
    }

    fn verdict(&self, clause: &Clause, base: &Exercise) -> Checked {
        if let Stranger(check) = clause.check {
            return check(&self.reach, base);
        }
        if matches!(clause.check, Files(_)) && self.placed == Placed::Copied {
            return not_applicable("its files are not in a folder given with --data");
        }
        let mut device = self.reach.connect()?;
        clause.visit(&mut Visit::new(&mut *device, base)?, &self.exercises)
    }
}

impl Clause {
    /// Tries it as a host. `others` are the data sets of all kinds.
    pub(super) fn visit(&self, visit: &mut Visit<'_>, others: &[Exercise]) -> Checked {
        match self.check {
            Host(check) | Files(check) => check(visit),
            Samples(kind) => match others.iter().find(|it| it.kind() == kind) {
                Some(exercise) => host::samples(&mut visit.with(exercise)),
                None => not_applicable("there is no such data set"),
            },
            Stranger(_) => not_applicable("it needs connections of its own"),
        }
    }
}

fn exercises(root: &Path) -> [Exercise; 3] {
    Kind::ALL.map(|kind| Exercise::of(kind, root, FOLDER))
}

/// Writes the files of a suite into a folder of their own below `root`; its name.
///
/// # Errors
/// They cannot be written.
pub fn place(root: &Path) -> io::Result<&'static str> {
    exercises(root).iter().try_for_each(Exercise::write)?;
    Ok(FOLDER)
}

/// Removes what [`place`] has written, as far as it is there; what else is in the folder stays.
pub fn unplace(root: &Path) {
    for exercise in exercises(root) {
        exercise.clear();
    }
    // Not while something of others is in it.
    drop(std::fs::remove_dir(root.join(FOLDER)));
}
