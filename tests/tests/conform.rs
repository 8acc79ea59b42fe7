//! `bothends conform`: the agent keeps to every clause over every wire, a device that does not is
//! named clause by clause, and whatever else is wrong is one line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_csd::Security;
use bothends_csd::conformance::EchoServe;
use bothends_csd::listen::{Listener, Terms, serve_connection};
use bothends_csd::wire::{HEADER_BYTES, Header};
use bothends_tests::programs::{program, run};
use bothends_tests::proxy::KINDS;

const PATIENCE: Duration = Duration::from_secs(240);

/// Clauses that the agent does not keep to yet: it serves one host at a time.
const NOT_YET: &[&str] = &[];

fn conform(args: &[&str]) -> Result<Output> {
    run(Command::new(program("bothends")?).arg("conform").args(args), PATIENCE)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The numbers of the clauses that came out in this way.
fn clauses(said: &str, verdict: &str) -> Vec<String> {
    let lines = said.lines().filter(|line| line.starts_with(verdict));
    lines.filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()
}

/// An agent over `data`, killed when a test ends.
struct Agent {
    child: Child,
    url: String,
}

impl Agent {
    fn start(listen: &str, data: &Path, more: &[&str]) -> Result<Self> {
        let mut command = Command::new(program("bothends-agent")?);
        command.args(["--listen", listen, "--cache", "off", "--data-root"]).arg(data);
        command.args(more).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut line)?;
        let url = line.trim().strip_prefix("listening on ").context("an address")?;
        Ok(Self { url: url.to_owned(), child })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_agent_keeps_to_every_clause_over_every_wire() -> Result<()> {
    for scheme in ["unix", "tcp", "spool"] {
        let folder = tempfile::tempdir()?;
        let data = folder.path().join("data");
        std::fs::create_dir(&data)?;
        std::fs::write(data.join("of the user"), "stays")?;
        let key = folder.path().join("key");
        std::fs::write(&key, "a key of at least sixteen bytes\n")?;
        ensure!(Command::new("chmod").arg("600").arg(&key).status()?.success());
        let key = ["--key-file", key.to_str().context("UTF-8")?];
        let (listen, more) = match scheme {
            "tcp" => ("tcp://127.0.0.1:0".to_owned(), &key[..]),
            _ => {
                (format!("{scheme}://{}", folder.path().join("door").display()), &[][..])
            }
        };
        let agent = Agent::start(&listen, &data, more)?;
        let at = data.to_str().context("UTF-8")?;
        let output = conform(&[&[&agent.url, "--data", at][..], more].concat())?;
        let said = text(&output.stdout);
        let failed = clauses(&said, "failed");
        ensure!(
            failed.iter().all(|it| NOT_YET.contains(&it.as_str())),
            "{scheme}: {said}"
        );
        let expected = i32::from(!failed.is_empty());
        ensure!(output.status.code() == Some(expected), "{scheme}: {output:?}");
        if scheme == "tcp" {
            ensure!(clauses(&said, "n/a").is_empty(), "{said}");
        }
        for line in said.lines() {
            ensure!(line.chars().count() <= 80, "too wide: {line}");
        }
        let left: Vec<_> = std::fs::read_dir(&data)?.collect::<Result<_, _>>()?;
        ensure!(left.len() == 1, "{left:?}");
    }
    Ok(())
}

/// A device that takes any session and makes bytes of its own.
#[test]
fn a_device_that_makes_other_bytes_is_named_clause_by_clause() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let door = folder.path().join("door");
    let address = format!("unix://{}", door.display());
    let listener = Listener::bind(&address.parse()?, &Security::default())?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let device = thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            let host = listener.accept(Duration::from_millis(20)).unwrap();
            let Some(host) = host else { continue };
            let terms = Terms { security: &Security::default(), stop: &stopped };
            drop(serve_connection(host, &mut EchoServe::default(), terms));
        }
    });
    let output = conform(&[&address, "--data", folder.path().to_str().context("UTF-8")?]);
    stop.store(true, Ordering::Relaxed);
    device.join().unwrap();
    let output = output?;
    let (said, words) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status.code() == Some(1), "{said}{words}");
    let failed = clauses(&said, "failed");
    for number in ["2.1", "2.3", "2.5", "3.1", "3.2", "3.3", "3.7", "5.1", "7.2"] {
        ensure!(failed.iter().any(|it| it == number), "{number} passed: {said}");
    }
    for number in ["1.1", "1.3", "1.4", "1.7", "2.8", "6.2"] {
        ensure!(!failed.iter().any(|it| it == number), "{number} failed: {said}");
    }
    ensure!(words.starts_with("error: the device violates "), "{words}");
    Ok(())
}

/// What is between a host and the agent, and keeps a `Ping` back until all jobs are answered.
fn keep_pings_back(host: UnixStream, agent: UnixStream) -> Result<()> {
    let n_jobs = Arc::new(AtomicI32::new(0));
    let (mut answers, mut to_host) = (agent.try_clone()?, host.try_clone()?);
    let n_answered = Arc::clone(&n_jobs);
    thread::spawn(move || -> Result<()> {
        while let Some((kind, bytes)) = message(&mut answers) {
            n_answered.fetch_sub(i32::from(kind == "Done"), Ordering::SeqCst);
            to_host.write_all(&bytes)?;
        }
        Ok(to_host.shutdown(Shutdown::Both)?)
    });
    let (mut asks, mut to_agent) = (host, agent);
    while let Some((kind, bytes)) = message(&mut asks) {
        n_jobs.fetch_add(i32::from(kind == "Job"), Ordering::SeqCst);
        while kind == "Ping" && n_jobs.load(Ordering::SeqCst) > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        to_agent.write_all(&bytes)?;
    }
    Ok(to_agent.shutdown(Shutdown::Both)?)
}

/// The kind of the next message, and all of it; of one that nobody could read, its header alone.
fn message(from: &mut UnixStream) -> Option<(&'static str, Vec<u8>)> {
    let mut bytes = vec![0; HEADER_BYTES];
    from.read_exact(&mut bytes).ok()?;
    let Ok(header) = Header::decode(bytes.first_chunk()?) else {
        return Some(("", bytes));
    };
    let payload = usize::try_from(header.payload_bytes()).ok()?;
    bytes.resize(HEADER_BYTES + header.body_bytes() + payload, 0);
    from.read_exact(&mut bytes[HEADER_BYTES..]).ok()?;
    Some((KINDS[usize::from(bytes[8])], bytes))
}

#[test]
fn a_device_that_answers_ping_after_its_jobs_is_found_out() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    std::fs::create_dir(&data)?;
    let (door, before) = (folder.path().join("door"), folder.path().join("before"));
    let _agent = Agent::start(&format!("unix://{}", door.display()), &data, &[])?;
    let listener = UnixListener::bind(&before)?;
    thread::spawn(move || {
        for host in listener.incoming() {
            let (host, agent) = (host.unwrap(), UnixStream::connect(&door).unwrap());
            thread::spawn(move || keep_pings_back(host, agent));
        }
    });
    let before = format!("unix://{}", before.display());
    let output = conform(&[&before, "--data", data.to_str().context("UTF-8")?])?;
    let said = text(&output.stdout);
    ensure!(clauses(&said, "failed") == ["6.4"], "{said}");
    Ok(())
}

#[test]
fn what_keeps_it_from_being_tried_is_one_line() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    std::fs::create_dir(&data)?;
    let door = format!("unix://{}", folder.path().join("door").display());
    let one_line = |args: &[&str], status: i32, expected: &str| -> Result<()> {
        let output = conform(args)?;
        let words = text(&output.stderr);
        ensure!(output.status.code() == Some(status), "{args:?}: {output:?}");
        ensure!(words.lines().count() == 1 && words.contains(expected), "{words}");
        Ok(())
    };
    one_line(&["nas:7070"], 2, "expected tcp+noise://HOST:PORT")?;
    one_line(&[&door], 1, "is the agent running there?")?;
    one_line(&[&door, "--dta", "x"], 2, "a similar argument exists: '--data'")?;
    one_line(&[&door, "--write", "x"], 2, "cannot be used with")?;
    let agent = Agent::start(&door, &data, &[])?;
    one_line(&[&agent.url], 1, "make files for another machine with --write")?;
    let elsewhere = folder.path().to_str().context("UTF-8")?;
    one_line(&[&agent.url, "--data", elsewhere], 1, "that the device serves?")?;
    ensure!(!folder.path().join("bothends-conform").exists());
    Ok(())
}

/// The files are made on one machine and copied below the data root of another one.
#[test]
fn files_that_were_copied_do() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    std::fs::create_dir(&data)?;
    let output = conform(&["--write", data.to_str().context("UTF-8")?])?;
    ensure!(output.status.success(), "{output:?}");
    let door = format!("unix://{}", folder.path().join("door").display());
    let agent = Agent::start(&door, &data, &[])?;
    let said = text(&conform(&[&agent.url])?.stdout);
    let failed = clauses(&said, "failed");
    ensure!(failed.iter().all(|it| NOT_YET.contains(&it.as_str())), "{said}");
    let skipped = clauses(&said, "n/a");
    ensure!(skipped == ["1.8", "7.1", "7.2"], "{said}");
    ensure!(data.join("bothends-conform").exists(), "it is the user's");
    Ok(())
}
