//! The host's command line, `bothends`, as a library of one function: [`main`]. It reads flags,
//! calls the crates that know how, and prints; it holds no logic of its own. The program itself is
//! in the package `bothends`, with the programs of devices.
//!
//! Exit status: 0 success; 1 the run failed, or its result could not be written, with one line that says
//! what, where and what to do; 2 bad arguments; 130, 143 and 129 where SIGINT, SIGTERM or SIGHUP
//! ended a run, also one whose state or results could not be written, which a line says.

mod args;
mod commands;
mod energy;
mod failed;
mod file;
mod flags;
mod say;
mod signals;
mod surroundings;
mod typed;
mod watch;

use std::ffi::OsString;

use clap::Command;
use clap::error::ErrorKind;

use failed::Failed;
use flags::one_line;

/// Does what `args` say, of which the first is the program's name, and returns the exit status. `beside`
/// describes the programs that are installed with this one, for completions and man pages.
#[must_use]
pub fn main(args: Vec<OsString>, beside: &[Command]) -> u8 {
    match (status(args, beside), say::is_all_written()) {
        (0, false) => 1,
        (status, _) => status,
    }
}

/// Does what `args` say. The status is that of what was done, whoever could be told of it.
fn status(args: Vec<OsString>, beside: &[Command]) -> u8 {
    let args = match args::parse(args) {
        Ok(args) => args,
        Err(error) => return misread(&error),
    };
    say::set_talk(args.talk());
    match commands::run(&args.command, beside) {
        Ok(()) => 0,
        Err(Failed::Arguments(why)) => {
            say::error(&why);
            2
        }
        Err(Failed::Run(error)) => {
            say::error(&one_line(&error));
            1
        }
        Err(Failed::Stopped { signal, where_to }) => {
            say::ending(&format!("stopped by {}: {where_to}", signal.name()));
            signal.status()
        }
    }
}

/// Help, version, and the usage of a command that lacks arguments, as clap prints them; a wrong
/// argument on one line.
fn misread(error: &clap::Error) -> u8 {
    let rendered = error.render();
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others are wrong arguments")]
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            say::help(&rendered);
            return 0;
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::MissingSubcommand
        | ErrorKind::MissingRequiredArgument => say::usage(&rendered),
        _ => say::error(&in_one_line(&rendered.to_string())),
    }
    2
}

/// A complaint of clap's without its usage: what is wrong, and what was meant.
fn in_one_line(text: &str) -> String {
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:"));
    let lines = lines
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let mut said = String::new();
    for line in lines {
        match line.strip_prefix("tip: ") {
            Some(tip) => said += &format!("; {tip}"),
            None if said.is_empty() => said += line.trim_start_matches("error: "),
            None => said += &format!(" {line}"),
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_and_its_tip_are_one_line() {
        let text = "error: unexpected argument '--quite' found\n\n  tip: a similar argument \
                    exists: '--quiet'\n\nUsage: bothends run\n\nFor more information, try\n";
        assert_eq!(
            in_one_line(text),
            "unexpected argument '--quite' found; a similar argument exists: '--quiet'"
        );
        let text =
            "error: invalid value 'x' for '--last <LAST>'\n  [possible values: a, b]\n";
        assert_eq!(
            in_one_line(text),
            "invalid value 'x' for '--last <LAST>' [possible values: a, b]"
        );
    }
}
