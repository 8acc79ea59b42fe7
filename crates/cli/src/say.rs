//! What the program prints: results on standard output, everything else on standard error.
//! The only module that writes to either.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the command line")]

/// One line of result.
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// One line about what is going on.
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}

/// The one line of a failed command.
pub(crate) fn error(text: &str) {
    eprintln!("error: {text}");
}
