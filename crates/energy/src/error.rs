//! Why a meter gives no figure: each case names the meter, the place and the remedy.
//!
//! A meter that this user may not read is an error, never a zero.

use std::io;
use std::path::PathBuf;

/// What can go wrong with a meter or a profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnergyError {
    /// There is no such meter on this machine.
    #[error("no meter `{meter}` here: {why}")]
    Absent {
        /// Its name.
        meter: String,
        /// What is not there.
        why: String,
    },
    /// It exists, but this user may not read it.
    #[error(
        "the meter `{meter}` may not be read: {place} is denied to this user; {remedy}"
    )]
    Denied {
        /// Its name.
        meter: String,
        /// The file or the call.
        place: String,
        /// How to get permission.
        remedy: &'static str,
    },
    /// A part of it has disappeared.
    #[error(
        "the meter `{meter}`: {place} is gone; was its driver unloaded or its device removed?"
    )]
    Gone {
        /// Its name.
        meter: String,
        /// The file or the device.
        place: String,
    },
    /// The system could not read it.
    #[error("the meter `{meter}`: cannot read {}: {source}", place.display())]
    Unreadable {
        /// Its name.
        meter: String,
        /// The file.
        place: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It said something that is not a number.
    #[error("the meter `{meter}`: {place} says `{said}`, which is not {expected}")]
    Garbage {
        /// Its name.
        meter: String,
        /// The file or the program.
        place: String,
        /// What it said, cut short.
        said: String,
        /// What it should have said.
        expected: &'static str,
    },
    /// Its counter decreased, which energy cannot.
    #[error(
        "the meter `{meter}`: the counter of {domain} fell from {before} to {after} \
         microjoules; it was reset, so what was used is not known: run again"
    )]
    WentBack {
        /// Its name.
        meter: String,
        /// The part of the machine.
        domain: String,
        /// Microjoules before.
        before: u64,
        /// Microjoules after.
        after: u64,
    },
    /// The program of a command meter failed.
    #[error("the meter `command:{command}` {why}; run it by hand: it must print watts")]
    Command {
        /// The command.
        command: String,
        /// What it did, with what it wrote to standard error.
        why: String,
    },
    /// A vendor's library refused.
    #[error("the meter `{meter}`: {place} says: {said}")]
    Library {
        /// Its name.
        meter: String,
        /// The call.
        place: String,
        /// What the library said.
        said: String,
    },
    /// A SPEC that does not name a meter.
    #[error(
        "`{spec}` is not a meter; use auto, rapl, perf, nvml, hwmon, hwmon:NAME or command:PROGRAM"
    )]
    Spec {
        /// As given.
        spec: String,
    },
    /// A profile that cannot be used.
    #[error("energy profile {profile}: {why}")]
    Profile {
        /// As given.
        profile: String,
        /// What is wrong and what is expected.
        why: String,
    },
    /// The thread that reads the meters could not be started.
    #[error("cannot start the thread that reads the meters")]
    Spawning {
        /// What the system said.
        source: io::Error,
    },
    /// The thread that reads the meters died: a bug.
    #[error("internal error: the thread that reads the meters ended; please report this")]
    Thread,
}

/// The text, cut to fit on a line.
pub(crate) fn short(said: &str) -> String {
    let line: String =
        said.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn what_was_said_fits_on_a_line() {
        assert_eq!(short(" 12\n34 \n"), "12 34");
        assert_eq!(short(&"é".repeat(99)).chars().count(), 61);
    }
}
