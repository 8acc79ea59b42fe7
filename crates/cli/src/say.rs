//! What the program prints: results on standard output, everything else on standard error.
//! The only module that writes to either.
#![allow(clippy::print_stderr, reason = "this is the command line")]

use std::borrow::Cow;
use std::io::{ErrorKind, Write, stdout};

/// One line of result. Who closes the pipe early (`| head`) has read enough.
pub(crate) fn line(text: &str) {
    if let Err(why) = writeln!(stdout(), "{}", tame(text))
        && why.kind() != ErrorKind::BrokenPipe
    {
        error(&format!("cannot write to standard output: {why}"));
    }
}

/// Text for another program, a shell say, as it is.
pub(crate) fn text(text: &[u8]) {
    if let Err(why) = stdout().write_all(text)
        && why.kind() != ErrorKind::BrokenPipe
    {
        error(&format!("cannot write to standard output: {why}"));
    }
}

/// One line about what is going on.
pub(crate) fn note(text: &str) {
    eprintln!("{}", tame(text));
}

/// The one line of a failed command.
pub(crate) fn error(text: &str) {
    eprintln!("error: {}", tame(&text.replace('\n', "\\n")));
}

/// Control characters that a file's name may have, written out: they would command the
/// terminal. Line ends stay.
fn tame(text: &str) -> Cow<'_, str> {
    let is_wild = |c: char| c.is_control() && c != '\n';
    if !text.contains(is_wild) {
        return Cow::Borrowed(text);
    }
    let tamed = text.chars().map(|c| match is_wild(c) {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    });
    Cow::Owned(tamed.collect())
}
