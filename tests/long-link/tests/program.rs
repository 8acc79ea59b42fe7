//! The program as people use it: it counts what it loses, and nothing is left of it, however it ends.
//!
//! Where there is no root or no `/dev/net/tun`, the skip is printed.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "these functions are all tests; a panic is the report, a skip must be seen"
)]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Much longer than anything here takes, on a machine of any load.
const DEADLINE: Duration = Duration::from_secs(60);

fn link(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_long-link"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Runs it to its end; nothing where the machine does not let us.
fn run(words: &[&str]) -> Option<Output> {
    let child =
        link(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) {
        eprint!("{said}");
        return None;
    }
    Some(output)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < until, "{what} within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How many processes of this machine were started with this word.
fn running(word: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines =
        processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines
        .filter(|line| line.split(|byte| *byte == 0).any(|w| w == word.as_bytes()))
        .count()
}

/// A link whose both ends sleep, the near one with a child of its own that nobody waits for.
fn sleeping(folder: &Path, seconds: &str) -> Option<Child> {
    let ready = folder.join("ready");
    let server = format!("touch '{}'; sleep {seconds}", ready.display());
    let command = format!("setsid sleep {seconds} & sleep {seconds}");
    let ready = ready.to_str().unwrap();
    let words = ["--server", &server, "--ready", ready, "--", "sh", "-c", &command];
    let mut child =
        link(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("three sleep", || {
        running(seconds) == 3 || child.try_wait().unwrap().is_some()
    });
    if let Some(status) = child.try_wait().unwrap() {
        assert_eq!(status.code(), Some(77), "it ended before three slept");
        eprintln!("skipped: no long link on this machine");
        return None;
    }
    Some(child)
}

/// A busy machine makes packets late, so what `--self-test` thinks of the rate is not asked here: `line` keeps
/// that, on a virtual clock. Nothing comes early or vanishes uncounted on any machine.
#[test]
fn no_packet_is_early_and_every_lost_one_is_counted() {
    let words = ["--rtt", "30", "--rate", "50", "--loss", "2", "--queue", "4000000"];
    let Some(output) = run(&[&words[..], &["--self-test"]].concat()) else { return };
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<f64> =
        told.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [rtt_ms, _, missing, of, counted] = numbers[..] else {
        panic!("`{told}`, {}", said(&output));
    };
    assert!(rtt_ms >= 30.0, "{told}");
    assert!(missing > 0.0 && of.total_cmp(&2000.0).is_eq(), "{told}");
    assert!(missing.total_cmp(&counted).is_eq(), "{told}");
    let said = said(&output);
    assert!(said.contains("MTU 1500, congestion control "), "{said}");
}

#[test]
fn the_status_is_that_of_the_command() {
    let Some(output) = run(&["--", "sh", "-c", "exit 7"]) else { return };
    assert_eq!(output.status.code(), Some(7));
    let output = run(&["--", "sh", "-c", "kill -SEGV $$"]).unwrap();
    assert_eq!(output.status.code(), Some(128 + 11), "{}", said(&output));
}

#[test]
fn both_ends_know_their_addresses_and_only_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (figures, ready, routes) = (path("figures"), path("ready"), path("routes"));
    let server = format!("ip route show > '{routes}'; touch '{ready}'; sleep 1000");
    let words = ["--server", &server, "--ready", &ready, "--figures", &figures];
    let words =
        [&words[..], &["--", "sh", "-c", "echo $LONG_LINK_NEAR $LONG_LINK_FAR"]].concat();
    let Some(output) = run(&words) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "10.9.0.1 10.9.0.2\n");
    let routes = fs::read_to_string(routes).unwrap();
    assert_eq!(routes.trim(), "10.9.0.1 dev wan0 proto kernel scope link src 10.9.0.2");
    assert!(fs::read_to_string(figures).unwrap().starts_with("{\"congestion\": \""));
}

#[test]
fn a_server_that_ends_is_named_and_the_command_is_not_left_waiting() {
    let Some(output) = run(&["--server", "exit 3", "--", "sleep", "1000"]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(125));
    let said = said(&output);
    assert!(
        said.contains("the server ended before the command did: exit status: 3"),
        "{said}"
    );
}

#[test]
fn a_server_that_is_never_ready_is_given_up() {
    let never = "/nonexistent/ready";
    let words =
        ["--server", "sleep 1000", "--ready", never, "--patience", "1", "--", "true"];
    let Some(output) = run(&words) else { return };
    assert_eq!(output.status.code(), Some(125));
    assert!(
        said(&output).contains("has not made /nonexistent/ready within 1s"),
        "{}",
        said(&output)
    );
}

#[test]
fn nothing_is_left_when_it_is_told_to_end() {
    for (signal, n) in [("INT", 2), ("TERM", 15)] {
        let folder = tempfile::tempdir().unwrap();
        let seconds = format!("1000.{n}{}", std::process::id());
        let Some(mut child) = sleeping(folder.path(), &seconds) else { return };
        let kill =
            Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(kill.unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(128 + n));
        wait_until("nobody sleeps any more", || running(&seconds) == 0);
    }
}

#[test]
fn nothing_is_left_when_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let seconds = format!("1000.9{}", std::process::id());
    let Some(mut child) = sleeping(folder.path(), &seconds) else { return };
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    wait_until("nobody sleeps any more", || running(&seconds) == 0);
}
