//! What the program says while it serves: one line each on standard error, for people or machines.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use bothends_core::setting::NamesSettings as _;
use bothends_csd::{Address, RunId, Whose};
use clap::ValueEnum;

use super::flags::flag;
use crate::door::News;

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// `warning: …`
    Text,
    /// `{"time":SECONDS,"level":"warning","message":"…"}`
    Json,
}

impl Form {
    /// Something that may need attention.
    pub(super) fn warn(self, message: &str) {
        self.say("warning", message);
    }

    /// Something normal.
    pub(super) fn note(self, message: &str) {
        self.say("note", message);
    }

    /// What happens at a door. Hosts that come and go are told of in JSON alone, where programs
    /// look for them: a person sees them in the metrics, and is told of complaints.
    pub(super) fn tell(self, news: &News<'_>, door: &Address) {
        match news {
            News::Complaint { from, error } => {
                put(&self.complaint(now_s(), *from, &error.with_names(flag)));
            }
            News::Came { .. } | News::Left { .. } | News::TurnedAway { .. } => {
                if self == Self::Json {
                    put(&event(now_s(), news, door));
                }
            }
        }
    }

    fn say(self, level: &str, message: &str) {
        put(&self.line(now_s(), level, message));
    }

    /// A warning about whoever connected from there.
    fn complaint(self, time_s: f64, from: Option<SocketAddr>, message: &str) -> String {
        let message = match from {
            Some(from) => format!("{from}: {message}"),
            None => message.to_owned(),
        };
        self.line(time_s, "warning", &message)
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

/// A line on standard error. What cannot be said, because the log is on a full disk or its reader has gone,
/// keeps nobody from being served.
pub(super) fn put(line: &str) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// The same on standard output.
pub(super) fn print(line: &str) {
    let _ = io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

/// Seconds since 1970.
fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// A line about a host, with its number and the door's address as fields of their own.
fn event(time_s: f64, news: &News<'_>, door: &Address) -> String {
    let nobody = Whose::default();
    let (event, host, from, words, served) = match news {
        News::Came { host, from } => ("host_came", *host, *from, "came to", None),
        News::Left { host, from, after, .. } => {
            ("host_left", *host, *from, "has left", Some(*after))
        }
        News::TurnedAway { host, from } => {
            ("host_turned_away", *host, *from, "found no room at", None)
        }
        News::Complaint { from, error } => {
            return Form::Json.complaint(time_s, *from, &error.with_names(flag));
        }
    };
    let from = from.map(|from| from.to_string());
    let served = served.map_or_else(String::new, |after| {
        format!(",\"served_seconds\":{:.3}", after.as_secs_f64())
    });
    let whose = if let News::Left { whose, .. } = news { whose } else { &nobody };
    let named = |key: &str, name: Option<&str>| {
        name.map_or_else(String::new, |name| format!(",\"{key}\":\"{name}\""))
    };
    let run = named("run", whose.run.as_ref().map(RunId::as_str));
    let job = named("job", whose.job.as_deref());
    let from = named("from", from.as_deref());
    let door = escaped(&door.to_string());
    format!(
        "{{\"time\":{time_s:.3},\"level\":\"note\",\"event\":\"{event}\",\"host\":{host},\
         \"address\":\"{door}\"{from}{served}{run}{job},\"message\":\"host {host} {words} {door}\"}}"
    )
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
    use std::time::Duration;

    use bothends_csd::CsdError;

    use super::*;

    #[test]
    fn hosts_that_come_and_go_are_events() {
        let door: Address = "unix:///run/a\"b".parse().unwrap();
        let said = |news: News<'_>| event(12.5, &news, &door);
        assert_eq!(
            said(News::Came { host: 3, from: None }),
            r#"{"time":12.500,"level":"note","event":"host_came","host":3,"address":"unix:///run/a\"b","message":"host 3 came to unix:///run/a\"b"}"#
        );
        let whose = Whose { run: RunId::like("4711"), job: Some("vit".to_owned()) };
        let (from, after) = (None, Duration::from_millis(1500));
        let left = said(News::Left { host: 3, from, after, whose });
        assert!(left.contains(r#""event":"host_left","host":3,"#), "{left}");
        assert!(
            left.contains(
                r#""served_seconds":1.500,"run":"4711","job":"vit","message":"host 3 has left"#
            ),
            "{left}"
        );
        let from = Some(([10, 1, 2, 3], 41_000).into());
        let busy = said(News::TurnedAway { host: 4, from });
        assert!(busy.contains(r#""event":"host_turned_away","host":4,"#), "{busy}");
        assert!(busy.contains(r#"a\"b","from":"10.1.2.3:41000","message""#), "{busy}");
    }

    /// Which of a hundred machines has the wrong key?
    #[test]
    fn a_complaint_says_whom_it_is_about() {
        let error = CsdError::LinkLost {
            doing: "knock",
            source: io::ErrorKind::BrokenPipe.into(),
        };
        let from = Some(([10, 1, 2, 3], 41_000).into());
        let door: Address = "tcp://127.0.0.1:1".parse().unwrap();
        let line = event(12.5, &News::Complaint { from, error: &error }, &door);
        let about = r#""level":"warning","message":"10.1.2.3:41000: "#;
        assert!(line.contains(about), "{line}");
        assert_eq!(
            Form::Text.complaint(12.5, from, "why"),
            "warning: 10.1.2.3:41000: why"
        );
        assert_eq!(Form::Text.complaint(12.5, None, "why"), "warning: why");
    }

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
