//! `bothends-agent` as a process of its own: it conforms over every wire, serves until a signal
//! comes, and says in one line what it cannot serve.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use bothends_agent::conformance::{self, Exercise, done};
use bothends_csd::{ConnectOptions, CsdError, connect};
use bothends_tests::programs::program;

/// Nothing here takes longer; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn exercise() -> (tempfile::TempDir, Exercise) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let exercise = Exercise::prepare(&data).unwrap();
    (dir, exercise)
}

/// The program, killed if a test ends without it.
struct Agent {
    child: Child,
    url: String,
}

impl Agent {
    fn start(listen: &str, root: &Path, more: &[&str]) -> Self {
        let mut child = command(listen, root, more).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| {
            let mut words = String::new();
            child.stderr.take().unwrap().read_to_string(&mut words).unwrap();
            panic!("it said `{line}` and `{words}`")
        });
        Self { url: url.to_owned(), child }
    }

    fn end(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "it never ended");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(listen: &str, root: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(program("bothends-agent").unwrap());
    command.args(["--listen", listen, "--data-root", root.to_str().unwrap()]).args(more);
    // Nothing of a test stays in the user's.
    command.args(["--cache", "off"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit status and standard error of a program that shall not start.
fn refusal(listen: &str, root: &Path, more: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command(listen, root, more).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn the_program_conforms_over_every_wire_and_leaves_nothing() {
    for scheme in ["unix", "tcp", "spool"] {
        let (dir, exercise) = exercise();
        let place = dir.path().join("door");
        let listen = match scheme {
            "tcp" => "tcp://127.0.0.1:0".to_owned(),
            _ => format!("{scheme}://{}", place.display()),
        };
        let mut agent =
            Agent::start(&listen, exercise.root(), &["--once", "--cores", "2"]);
        let address = agent.url.parse().unwrap();
        let mut device = connect(&address, &ConnectOptions::default()).unwrap();
        conformance::all(&mut *device, &exercise);
        drop(device);
        assert!(agent.end().success(), "{scheme}");
        assert!(!place.exists(), "{scheme} left {}", place.display());
    }
}

/// Where one batch of the exercise fits, 1.8 MB, the program does all the same; where none does it
/// says so.
#[test]
fn a_program_with_little_memory_conforms_or_says_what_is_too_large() {
    let (dir, exercise) = exercise();
    let listen = format!("unix://{}", dir.path().join("door").display());
    let agent = Agent::start(&listen, exercise.root(), &["--memory", "2"]);
    let address = agent.url.parse().unwrap();
    let mut device = connect(&address, &ConnectOptions::default()).unwrap();
    conformance::all(&mut *device, &exercise);
    drop((device, agent));

    // The first one's data are not all there any more.
    let (dir, exercise) = self::exercise();
    let listen = format!("unix://{}", dir.path().join("door").display());
    let agent = Agent::start(&listen, exercise.root(), &["--memory", "1"]);
    let address = agent.url.parse().unwrap();
    let mut device = connect(&address, &ConnectOptions::default()).unwrap();
    device.hello().unwrap();
    let refused = device.open(&exercise.session()).unwrap_err();
    let CsdError::SessionRefused { reason } = refused else { panic!("{refused}") };
    assert!(reason.contains("at most 1048576; use a smaller batch size"), "{reason}");
}

#[test]
fn one_host_after_the_other_is_served_until_a_signal_comes() {
    let (dir, exercise) = exercise();
    let place = dir.path().join("door");
    let listen = format!("unix://{}", place.display());
    let mut agent = Agent::start(&listen, exercise.root(), &[]);
    for _ in 0..2 {
        let address = agent.url.parse().unwrap();
        let mut device = connect(&address, &ConnectOptions::default()).unwrap();
        device.hello().unwrap();
        device.open(&exercise.session()).unwrap();
        done(&mut *device, &exercise, exercise.job(0, &[0]));
    }
    let id = agent.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(agent.end().success());
    assert!(!place.exists());
}

#[test]
fn an_agent_makes_a_key_and_serves_whoever_has_it() {
    let (dir, exercise) = exercise();
    let key = dir.path().join("shared.key");
    let keygen = || {
        let mut command = Command::new(program("bothends-agent").unwrap());
        command.arg("keygen").arg(&key).output().unwrap()
    };
    assert!(keygen().status.success());
    let made = std::fs::read(&key).unwrap();
    let again = keygen();
    assert_eq!(again.status.code(), Some(1));
    let words = String::from_utf8(again.stderr).unwrap();
    assert!(words.contains("shared.key") && words.lines().count() == 1, "{words}");
    assert_eq!(std::fs::read(&key).unwrap(), made);

    let listen = "tcp+noise://127.0.0.1:0";
    let flag = ["--key-file", key.to_str().unwrap()];
    let agent = Agent::start(listen, exercise.root(), &flag);
    let options =
        ConnectOptions { key_file: Some(key.clone()), ..ConnectOptions::default() };
    let mut device = connect(&agent.url.parse().unwrap(), &options).unwrap();
    device.hello().unwrap();
    device.open(&exercise.session()).unwrap();
    done(&mut *device, &exercise, exercise.job(0, &[0]));

    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&key, mode).unwrap();
    let (status, words) = refusal(listen, exercise.root(), &flag);
    assert_eq!(status, Some(1));
    assert!(words.contains(&format!("run `chmod 600 {}`", key.display())), "{words}");
}

#[test]
fn what_cannot_be_served_is_one_line_and_the_right_status() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let (status, words) = refusal("tcp://127.0.0.1:0", &missing, &[]);
    assert_eq!(status, Some(1));
    let expected =
        format!("error: cannot read {} beside the device: No such", missing.display());
    assert!(words.starts_with(&expected), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");

    let (status, words) = refusal("tcp://0.0.0.0:0", dir.path(), &[]);
    assert_eq!(status, Some(1));
    assert!(words.contains("use tcp+noise:// or tls://"), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");

    let (status, words) = refusal("nas:7070", dir.path(), &[]);
    assert_eq!(status, Some(2));
    assert!(words.contains("tcp://HOST:PORT"), "{words}");

    let (status, _) = refusal("tcp://127.0.0.1:0", dir.path(), &["--cores", "0"]);
    assert_eq!(status, Some(2));

    let (status, words) = refusal("tcp://127.0.0.1:0", dir.path(), &["--memory", "0"]);
    assert_eq!(status, Some(2));
    assert!(words.contains("give MiB, 1 or more, or auto"), "{words}");
}
