//! What the program prints: results on standard output, everything else on standard error.
//! The only module that writes to either.
#![allow(clippy::print_stderr, reason = "this is the command line")]

use std::io::{ErrorKind, Write, stdout};

/// One line of result. Who closes the pipe early (`| head`) has read enough.
pub(crate) fn line(text: &str) {
    if let Err(why) = writeln!(stdout(), "{text}")
        && why.kind() != ErrorKind::BrokenPipe
    {
        error(&format!("cannot write to standard output: {why}"));
    }
}

/// One line about what is going on.
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}

/// The one line of a failed command.
pub(crate) fn error(text: &str) {
    eprintln!("error: {text}");
}
