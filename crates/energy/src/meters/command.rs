//! Any program that prints watts: a meter at the plug, a BMC (`ipmitool`), a power strip. Its
//! power is integrated from one reading to the next.
//!
//! The program runs in a shell and in a process group of its own, so one that does not end in
//! time is killed with all that it has started.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::error::{EnergyError, short};
use crate::meters::integral::Integral;
use crate::{Counter, Domain, Meter, Part};

const NAME: &str = "command";

/// The longest a reading may take.
const DEADLINE: Duration = Duration::from_secs(2);

/// Most bytes of an answer that are kept.
const MOST_BYTES: usize = 4096;

/// More than any machine draws; a program that prints more does not print watts.
const MOST_WATTS: f64 = 1e6;

/// A program that prints the watts of the whole machine.
#[derive(Debug)]
pub struct CommandMeter {
    command: String,
    deadline: Duration,
    began: Instant,
    integral: Integral,
    domains: Vec<Domain>,
}

impl CommandMeter {
    /// Runs `command` in a shell once.
    ///
    /// # Errors
    /// It fails, does not end in time, or prints anything but a number.
    pub fn open(command: &str) -> Result<Self, EnergyError> {
        Self::open_within(command, DEADLINE)
    }

    /// The same with another deadline for each reading (tests).
    ///
    /// # Errors
    /// As [`CommandMeter::open`].
    pub fn open_within(command: &str, deadline: Duration) -> Result<Self, EnergyError> {
        let domain = Domain::measured(NAME, command.to_owned(), Part::Machine);
        let mut meter = Self {
            command: command.to_owned(),
            deadline,
            began: Instant::now(),
            integral: Integral::default(),
            domains: vec![domain],
        };
        meter.read()?;
        Ok(meter)
    }

    fn watts(&self) -> Result<f64, EnergyError> {
        let failed = |why| EnergyError::Command { command: self.command.clone(), why };
        let answer = answer(&self.command, self.deadline).map_err(|error| {
            failed(if error.kind() == io::ErrorKind::TimedOut {
                format!("did not end within {} s", self.deadline.as_secs_f64())
            } else {
                format!("could not be run: {error}")
            })
        })?;
        if !answer.status.success() {
            let status = answer.status;
            let said = match short(&answer.errors) {
                said if said.is_empty() => {
                    "it wrote nothing to standard error".to_owned()
                }
                said => format!("it wrote `{said}`"),
            };
            return Err(failed(format!("failed ({status}); {said}")));
        }
        watts(&answer.output).ok_or_else(|| EnergyError::Garbage {
            meter: format!("{NAME}:{}", self.command),
            place: "its output".to_owned(),
            said: short(&answer.output),
            expected: "a number of watts, such as 42 or 42.5 W",
        })
    }
}

impl Meter for CommandMeter {
    fn name(&self) -> &str {
        NAME
    }

    fn domains(&self) -> &[Domain] {
        &self.domains
    }

    fn read(&mut self) -> Result<Vec<Counter>, EnergyError> {
        // The middle of the call is the best guess at when the watts were measured.
        let before = self.began.elapsed();
        let watts = self.watts()?;
        let at = (before + self.began.elapsed()) / 2;
        Ok(vec![Counter { energy_uj: self.integral.add(at, watts) }])
    }
}

/// The watts that a program printed: one number, perhaps with the unit.
fn watts(output: &str) -> Option<f64> {
    let number =
        output.trim().trim_end_matches(" watts").trim_end_matches('W').trim_end();
    let watts: f64 = number.parse().ok()?;
    (0.0..=MOST_WATTS).contains(&watts).then_some(watts)
}

struct Answer {
    output: String,
    errors: String,
    status: ExitStatus,
}

fn answer(command: &str, deadline: Duration) -> io::Result<Answer> {
    let until = Instant::now() + deadline;
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let mut pipes = [
        Pipe::new(child.stdout.take().map(OwnedFd::from)),
        Pipe::new(child.stderr.take().map(OwnedFd::from)),
    ];
    let ended = gather(&mut pipes, until).and_then(|()| wait(&mut child, until));
    let status = match ended {
        Ok(status) => status,
        Err(error) => {
            end(&mut child);
            return Err(error);
        }
    };
    let [output, errors] =
        pipes.map(|pipe| String::from_utf8_lossy(&pipe.bytes).into_owned());
    Ok(Answer { output, errors, status })
}

/// The output of a program.
struct Pipe {
    /// `None` once its other end is closed.
    file: Option<File>,
    bytes: Vec<u8>,
}

impl Pipe {
    fn new(end: Option<OwnedFd>) -> Self {
        Self { file: end.map(File::from), bytes: Vec::new() }
    }

    /// Reads what is available; the rest of a long answer is dropped.
    fn take(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut piece = [0; MOST_BYTES];
        let n = file.read(&mut piece)?;
        if n == 0 {
            self.file = None;
        }
        let room = MOST_BYTES - self.bytes.len();
        self.bytes.extend_from_slice(&piece[..n.min(room)]);
        Ok(())
    }
}

/// Reads both until both are closed.
fn gather(pipes: &mut [Pipe; 2], until: Instant) -> io::Result<()> {
    while pipes.iter().any(|pipe| pipe.file.is_some()) {
        let left = until.saturating_duration_since(Instant::now());
        let ready = {
            let open = pipes.iter().filter_map(|pipe| pipe.file.as_ref());
            let mut waiting: Vec<PollFd> =
                open.map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN)).collect();
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            if poll(&mut waiting, timeout).map_err(io::Error::from)? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            waiting.iter().map(|end| end.any().unwrap_or(true)).collect::<Vec<_>>()
        };
        let open = pipes.iter_mut().filter(|pipe| pipe.file.is_some());
        for (pipe, is_ready) in open.zip(ready) {
            if is_ready {
                pipe.take()?;
            }
        }
    }
    Ok(())
}

/// Waits for a program that has closed its outputs, and so is about to end.
fn wait(child: &mut Child, until: Instant) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends the program and all that it has started.
fn end(child: &mut Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        // It may have ended in the meantime.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watts_are_a_number_with_or_without_the_unit() {
        let table = [
            ("42\n", Some(42.0)),
            (" 42.5 W ", Some(42.5)),
            ("42.5W", Some(42.5)),
            ("7 watts\n", Some(7.0)),
            ("0", Some(0.0)),
            ("-1", None),
            ("1e9", None),
            ("NaN", None),
            ("42 kW", None),
            ("1 2", None),
            ("", None),
        ];
        for (output, expected) in table {
            assert_eq!(watts(output), expected, "{output:?}");
        }
    }

    /// Whether a process with this command line exists.
    fn is_running(line: &str) -> bool {
        let processes = std::fs::read_dir("/proc").unwrap();
        let mut lines = processes
            .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
        lines.any(|bytes| {
            String::from_utf8_lossy(&bytes).replace('\0', " ").trim() == line
        })
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_with_its_children() {
        let began = Instant::now();
        // No other process sleeps this long.
        let child = format!("sleep 9{}", std::process::id());
        let command = format!("{child} & sleep 9876");
        let error =
            CommandMeter::open_within(&command, Duration::from_millis(100)).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("did not end within 0.1 s"), "{said}");
        while is_running(&child) {
            assert!(began.elapsed() < Duration::from_secs(20), "a child was left behind");
        }
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let error =
            CommandMeter::open("echo no sensor >&2; exit 3").unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.contains("it wrote `no sensor`"), "{error}");
        let error = CommandMeter::open("echo warm").unwrap_err().to_string();
        assert!(error.contains("says `warm`, which is not a number of watts"), "{error}");
    }

    #[test]
    fn a_long_answer_is_no_trouble() {
        let error = CommandMeter::open("yes | head -c 300000").unwrap_err().to_string();
        assert!(error.contains("which is not a number of watts"), "{error}");
    }
}
