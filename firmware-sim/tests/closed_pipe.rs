//! The program while nobody reads what it says any more: it serves on, and ends as it would have ended.
//!
//! A copy of this test's process is the program: this package has none of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio, exit};

use bothends_firmware_sim::program;

/// The arguments of the process that is to be the program, one a line.
const ARGS: &str = "BOTHENDS_TEST_FIRMWARE_SIM_ARGS";

#[test]
#[allow(clippy::exit, reason = "the process is the program from here on")]
fn this_process_is_the_program_where_it_is_asked_to_be() {
    let Ok(args) = std::env::var(ARGS) else { return };
    let args = ["firmware-sim"].into_iter().chain(args.lines());
    exit(program::main(args.map(Into::into)).into());
}

fn sim(listen: &str, media: &Path) -> Command {
    let args = ["--preset", "ideal", "--die-with-stdin", "--listen", listen, "--media"];
    let args = [&args[..], &[media.to_str().unwrap()]].concat();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "this_process_is_the_program_where_it_is_asked_to_be"]);
    command.arg("--nocapture").env(ARGS, args.join("\n"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_reader_that_has_left_does_not_end_it_in_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), [0; 4096]).unwrap();
    let door = format!("unix://{}", dir.path().join("door").display());
    for listen in ["nvme-tcp://127.0.0.1:0", &door] {
        let mut child = sim(listen, dir.path()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The harness has lines of its own before it. With the iterator the pipe is closed.
        let said = lines.map(Result::unwrap).find(|line| line.contains("listening on "));
        assert!(said.is_some(), "{listen}");
        drop(child.stdin.take());
        let output = child.wait_with_output().unwrap();
        let words = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), words.as_str()), (Some(0), ""), "{listen}");
    }
}

#[test]
fn a_complaint_that_nobody_can_read_is_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = sim("tcp://127.0.0.1:0", &missing).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(1));
}
