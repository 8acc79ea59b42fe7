//! What the program says while it serves: one line each on standard error, for people or machines.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueEnum;

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// `warning: …`
    Text,
    /// `{"time":SECONDS,"level":"warning","message":"…"}`
    Json,
}

impl Form {
    /// Something that somebody may have to mend.
    pub(super) fn warn(self, message: &str) {
        self.say("warning", message);
    }

    /// Something that is as it should be.
    pub(super) fn note(self, message: &str) {
        self.say("note", message);
    }

    fn say(self, level: &str, message: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        eprintln!("{}", self.line(now.as_secs_f64(), level, message));
    }

    fn line(self, time_s: f64, level: &str, message: &str) -> String {
        match self {
            Self::Text => format!("{level}: {message}"),
            Self::Json => {
                let message = escaped(message);
                format!(
                    "{{\"time\":{time_s:.3},\"level\":\"{level}\",\"message\":\"{message}\"}}"
                )
            }
        }
    }
}

/// What may stand between quotes in JSON (RFC 8259 §7).
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            c if c < ' ' => drop(write!(escaped, "\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_whatever_a_stranger_makes_of_it() {
        let line = |form: Form| form.line(12.5, "warning", "a \"b\"\n\\ é");
        assert_eq!(line(Form::Text), "warning: a \"b\"\n\\ é");
        assert_eq!(
            line(Form::Json),
            r#"{"time":12.500,"level":"warning","message":"a \"b\"\u000a\\ é"}"#
        );
    }
}
