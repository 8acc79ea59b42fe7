//! The peers: a program that does the same ops with torchvision and OpenCV, and takes the
//! time itself.
//!
//! It prints a greeting as soon as it runs, which nothing but Python gets to. From then on it
//! answers each line with a line; its images follow the first two. Every wait has a deadline, and
//! the program is always ended when this is dropped. Its answers are trusted;
//! `scripts/peers/ops.py` is such a program.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bothends_ops::image::Image;
use serde::Serialize;

use super::cases::Case;
use super::work::{Images, Timed};
use crate::BenchError;
use crate::table::word;

/// The program's first line, before it loads anything.
const GREETING: &str = "peers";
/// The most bytes of a line that it prints.
const LONGEST_LINE: u64 = 4096;
/// Longest wait for the interpreter to run at all.
const LONGEST_GREETING: Duration = Duration::from_secs(10);
/// Longest wait for the program to load its libraries.
const LONGEST_START: Duration = Duration::from_secs(60);
/// Longest wait for one measurement.
const LONGEST_ANSWER: Duration = Duration::from_secs(60);
/// Longest wait for the thread that talks to it, once it has been ended.
const LONGEST_END: Duration = Duration::from_secs(1);

/// How to start the program.
#[derive(Debug, Clone)]
pub struct PeersCommand {
    /// An interpreter of Python that has torch, torchvision, Pillow, NumPy and OpenCV.
    pub python: PathBuf,
    /// The program.
    pub script: PathBuf,
}

/// Who else does the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// torchvision on tensors of bytes.
    Tensor,
    /// torchvision on Pillow's images.
    Pillow,
    /// OpenCV on NumPy's arrays.
    OpenCv,
}

impl Peer {
    /// In the order of the table.
    pub const ALL: [Self; 3] = [Self::Tensor, Self::Pillow, Self::OpenCv];
}

/// The running program.
#[derive(Debug)]
pub(super) struct Peers {
    child: Child,
    /// `None` once nothing is to be asked any more.
    requests: Option<SyncSender<Vec<u8>>>,
    /// The greeting, then answers; ends with the program.
    answers: Receiver<String>,
    talking: Option<JoinHandle<()>>,
    /// The peers and their versions.
    pub(super) versions: String,
}

impl Peers {
    /// Starts the program and gives it the images.
    pub(super) fn start(
        command: &PeersCommand,
        images: &Images,
    ) -> Result<Self, BenchError> {
        let mut peers = Self::greeted(command, LONGEST_GREETING)?;
        peers.ask("image source", image(&images.source), LONGEST_START)?;
        peers.versions =
            peers.ask("image sample", image(&images.sample), LONGEST_START)?;
        Ok(peers)
    }

    /// Starts the program and reads its greeting.
    fn greeted(command: &PeersCommand, longest: Duration) -> Result<Self, BenchError> {
        let PeersCommand { python, script } = command;
        let peers = Self::spawned(command)?;
        let why = match peers.answers.recv_timeout(longest) {
            Ok(line) if line == GREETING => return Ok(peers),
            Ok(_) => "it said something else".to_owned(),
            Err(RecvTimeoutError::Disconnected) => "it ended".to_owned(),
            Err(RecvTimeoutError::Timeout) => {
                format!("it said nothing for {} s", longest.as_secs())
            }
        };
        Err(BenchError::NoPython { python: python.clone(), script: script.clone(), why })
    }

    fn spawned(command: &PeersCommand) -> Result<Self, BenchError> {
        let PeersCommand { python, script } = command;
        let failed = |source| BenchError::PeersStart { python: python.clone(), source };
        let mut child = Command::new(python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        // Both ends exist, because they were requested.
        let (stdin, stdout) =
            (child.stdin.take(), child.stdout.take().map(BufReader::new));
        let (requests, asked) = sync_channel::<Vec<u8>>(1);
        let (answering, answers) = sync_channel(1);
        let talking = thread::Builder::new().name("peers".to_owned()).spawn(move || {
            let (Some(mut stdin), Some(mut stdout)) = (stdin, stdout) else { return };
            while let Some(said) = line(&mut stdout) {
                if answering.send(said).is_err() {
                    return;
                }
                let Ok(request) = asked.recv() else { return };
                // A program that ends before it has read everything may have said why.
                let _ = stdin.write_all(&request).and_then(|()| stdin.flush());
            }
        });
        let mut peers = Self {
            child,
            requests: Some(requests),
            answers,
            talking: None,
            versions: String::new(),
        };
        peers.talking = Some(talking.map_err(failed)?);
        Ok(peers)
    }

    /// Has `peer` do `case`; `None` where it has no such op.
    pub(super) fn measure(
        &mut self,
        peer: Peer,
        case: &Case,
        at_least: Duration,
    ) -> Result<Option<Timed>, BenchError> {
        let (peer, op, parameters) = (word(peer), case.op, &case.parameters);
        let what = format!("measure {peer} {} {op} {parameters}", at_least.as_millis());
        let answer = self.ask(what.trim_end(), vec![b'\n'], LONGEST_ANSWER)?;
        let mut words = answer.split_whitespace();
        let first = words.next();
        if first == Some("-") {
            return Ok(None);
        }
        let us = first.and_then(|word| word.parse().ok());
        let mean_value = words.next().and_then(|word| word.parse().ok());
        match us {
            Some(us) => Ok(Some(Timed { us, mean_value })),
            None => Err(BenchError::PeersFailed { asked: what, why: answer }),
        }
    }

    /// Sends `what`, followed by `rest`, and waits for the answer.
    fn ask(
        &mut self,
        what: &str,
        rest: Vec<u8>,
        longest: Duration,
    ) -> Result<String, BenchError> {
        let mut request = what.as_bytes().to_vec();
        request.extend(rest);
        let is_asked = self.requests.as_ref().is_some_and(|to| to.send(request).is_ok());
        let answer = match is_asked {
            true => self.answers.recv_timeout(longest),
            false => Err(RecvTimeoutError::Disconnected),
        };
        let asked = what.to_owned();
        match answer {
            Ok(line) => match line.strip_prefix("error ") {
                None => Ok(line),
                Some(why) => Err(BenchError::PeersFailed { asked, why: why.to_owned() }),
            },
            Err(RecvTimeoutError::Disconnected) => Err(BenchError::PeersGone { asked }),
            Err(RecvTimeoutError::Timeout) => {
                Err(BenchError::PeersSilent { asked, seconds: longest.as_secs() })
            }
        }
    }
}

impl Drop for Peers {
    /// The program dies first: whoever waits for it wakes up.
    fn drop(&mut self) {
        self.requests = None;
        // Fails only where it is dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let Some(talking) = self.talking.take() else { return };
        // Children of the program may keep its pipes open; the thread is then left behind.
        let deadline = Instant::now() + LONGEST_END;
        while !talking.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        if talking.is_finished() {
            let _ = talking.join();
        }
    }
}

/// The next line of the program; `None` if it has ended.
fn line(stdout: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    let n_bytes = stdout.take(LONGEST_LINE).read_line(&mut line).ok()?;
    (n_bytes > 0).then(|| line.trim().to_owned())
}

/// Rows, columns, and after the line the pixels.
fn image(image: &Image) -> Vec<u8> {
    let mut bytes = format!(" {} {}\n", image.height(), image.width()).into_bytes();
    bytes.extend(image.pixels());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use bothends_core::recipe::Size;
    use std::fs;
    use std::time::Instant;

    fn shell(folder: &tempfile::TempDir, text: &str) -> PeersCommand {
        let script = folder.path().join("peers.sh");
        fs::write(&script, text).unwrap();
        PeersCommand { python: "/bin/sh".into(), script }
    }

    #[test]
    fn a_silent_program_is_ended_after_the_deadline() {
        let folder = tempfile::tempdir().unwrap();
        // The shell's own child outlives it, with its end of the pipe.
        let command = shell(&folder, "echo peers; echo a; echo b; sleep 40; true");
        let mut image = Image::default();
        image.reshape(Size { height: 1, width: 1 }, 3);
        let images = Images { source: image.clone(), sample: image };
        let begin = Instant::now();
        let mut peers = Peers::start(&command, &images).unwrap();
        assert_eq!(peers.versions, "b");
        let asked = peers.ask("anything", vec![b'\n'], Duration::from_millis(30));
        assert!(matches!(asked, Err(BenchError::PeersSilent { .. })), "{asked:?}");
        drop(peers);
        assert!(begin.elapsed() < Duration::from_secs(30), "it was not ended");
    }

    #[test]
    fn what_is_no_python_is_named_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let endless = "exec cat /dev/zero";
        for (python, text, why) in [
            ("/bin/true", "", "it ended"),
            ("/bin/cat", "import sys", "it said something else"),
            ("/bin/sh", endless, "it said something else"),
            ("/bin/sh", "sleep 40; true", "it said nothing for 0 s"),
        ] {
            let command = PeersCommand { python: python.into(), ..shell(&folder, text) };
            let longest = match text.starts_with("sleep") {
                true => Duration::from_millis(30),
                false => Duration::from_secs(100),
            };
            let said = Peers::greeted(&command, longest).unwrap_err().to_string();
            assert!(said.contains(python) && said.contains(why), "{said}");
        }
    }
}
