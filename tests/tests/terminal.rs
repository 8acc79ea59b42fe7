//! The command line as a terminal shows it: usage on the first keystroke, help in groups with
//! examples, 80 columns, colours where they are wanted, and as much talk as was asked for;
//! and where there is no room for it.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests; skips must be seen")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use bothends_tests::{generated, programs};

const DEADLINE: Duration = Duration::from_secs(120);

/// Runs `bothends` on a terminal of so many columns that it is told of.
fn in_columns(columns: u32, args: &[&str]) -> Result<Output> {
    let mut command = Command::new(programs::program("bothends")?);
    command.args(args).env("COLUMNS", columns.to_string());
    programs::run(&mut command, DEADLINE)
}

fn bothends(args: &[&str]) -> Result<Output> {
    in_columns(80, args)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// No line is wider, except for a single word such as a path or a digest.
fn fits(text: &str, columns: usize, what: &str) -> Result<()> {
    for line in text.lines() {
        let is_word = line.split_whitespace().count() <= 1;
        ensure!(is_word || line.chars().count() <= columns, "{what}: too wide: {line}");
    }
    Ok(())
}

#[test]
fn the_first_keystroke_shows_the_commands() -> Result<()> {
    let output = bothends(&[])?;
    ensure!(output.status.code() == Some(2), "{}", output.status);
    let said = text(&output.stderr);
    for part in ["Usage: bothends", "Commands:", "run ", "doctor ", "simulate ", "--help"]
    {
        ensure!(said.contains(part), "no {part} in {said}");
    }
    let output = bothends(&["bench"])?;
    ensure!(text(&output.stderr).contains("Usage: bothends bench"), "{output:?}");
    Ok(())
}

#[test]
fn a_command_that_lacks_arguments_keeps_its_usage() -> Result<()> {
    let output = bothends(&["run"])?;
    ensure!(output.status.code() == Some(2) && output.stdout.is_empty(), "{output:?}");
    let said = text(&output.stderr);
    for part in
        ["--data <[NAME=]PATH>", "--recipe <NAME|FILE>", "Usage: bothends run", "--help"]
    {
        ensure!(said.contains(part), "no {part} in {said}");
    }
    Ok(())
}

#[test]
fn a_wrong_flag_and_a_wrong_extension_are_told_what_was_meant() -> Result<()> {
    let run = ["run", "--data", "x", "--recipe", "raw"];
    for (more, line) in [
        (
            &["--quite"][..],
            "unexpected argument '--quite' found; a similar argument exists: '--quiet'",
        ),
        (
            &["--report", "x.pdf"][..],
            "`--report x.pdf`: it is a page of HTML, no .pdf; give a file that ends in .html",
        ),
    ] {
        let output = bothends(&[&run[..], more].concat())?;
        ensure!(output.status.code() == Some(2), "{output:?}");
        ensure!(text(&output.stderr) == format!("error: {line}\n"), "{output:?}");
    }
    Ok(())
}

#[test]
fn help_is_in_groups_with_examples_and_the_short_one_is_short() -> Result<()> {
    let long = text(&bothends(&["run", "--help"])?.stdout);
    for part in
        ["Data:", "Host:", "Devices: the second prong:", "Checkpoints:", "Energy:"]
    {
        ensure!(long.lines().any(|line| line == part), "no {part} in {long}");
    }
    ensure!(long.contains("Examples:") && long.contains("--csd sim:newport"), "{long}");
    let words = long.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(words.contains("cpu, csd, mte, wrr, relaxed or ordered"), "{long}");
    let short = text(&bothends(&["run", "-h"])?.stdout);
    ensure!(short.lines().count() <= 45, "{} lines:\n{short}", short.lines().count());
    ensure!(!short.contains("--energy-profile") && long.contains("--energy-profile"));
    Ok(())
}

#[test]
fn the_examples_of_the_help_are_understood() -> Result<()> {
    for command in ["run", "doctor", "simulate", "conform"] {
        let help = text(&in_columns(100, &[command, "--help"])?.stdout);
        let (_, examples) = help.split_once("Examples:").unwrap();
        let examples = examples.replace("\\\n", " ");
        let lines =
            examples.lines().filter_map(|line| line.trim().strip_prefix("bothends "));
        let mut n = 0;
        for line in lines {
            // With a flag that nobody has, only the flags before it are read.
            let args: Vec<&str> = line.split_whitespace().chain(["--no-such"]).collect();
            let said = text(&bothends(&args)?.stderr);
            ensure!(said.contains("unexpected argument '--no-such'"), "{line}: {said}");
            n += 1;
        }
        ensure!((3..=6).contains(&n), "{n} examples of {command}");
    }
    Ok(())
}

#[test]
fn every_help_fits_80_columns() -> Result<()> {
    let commands = [
        "demo", "run", "doctor", "inspect", "simulate", "pack", "unpack", "report",
        "conform", "top",
    ];
    let mut all: Vec<Vec<&str>> = vec![vec![]];
    all.extend(commands.map(|command| vec![command]));
    all.extend(["ops", "io", "au"].map(|what| vec!["bench", what]));
    for command in all {
        for help in ["--help", "-h"] {
            let args = [&command[..], &[help]].concat();
            let output = bothends(&args)?;
            ensure!(output.status.success(), "{args:?}");
            fits(&text(&output.stdout), 80, &format!("{args:?}"))?;
        }
    }
    Ok(())
}

/// Results of all commands that need no minute.
fn results(folder: &Path) -> Result<Vec<Vec<String>>> {
    let data = generated()?.display().to_string();
    let at = |name: &str| folder.join(name).display().to_string();
    let (events, store, page) = (at("events.jsonl"), at("store"), at("page.html"));
    let line = |words: &str| -> Vec<String> {
        let word = |word: &str| match word {
            "DATA" => data.clone(),
            "EVENTS" => events.clone(),
            "STORE" => store.clone(),
            "PAGE" => page.clone(),
            other => other.to_owned(),
        };
        words.split_whitespace().map(word).collect()
    };
    Ok(vec![
        line(
            "run --data DATA --recipe imagenet-train --batch-size 8 --workers 1 --digest \
             --epochs 2 --events EVENTS",
        ),
        line("report EVENTS PAGE"),
        line("doctor"),
        line(
            "doctor --data DATA --batch-size 8 --workers 1 --quick --accelerator sim:resnet50-a100",
        ),
        line("inspect DATA"),
        line("simulate --list"),
        line("simulate --scenario device-dies --seeds 1"),
        line("simulate --scenario device-dies --recovery off --seeds 1"),
        line("pack DATA STORE"),
        line("inspect STORE"),
        line("bench ops --rounds 1 invert"),
        line("bench io --data DATA --passes 1 --depth 1"),
    ])
}

#[test]
fn every_result_fits_80_columns() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for args in results(folder.path())? {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = bothends(&words)?;
        ensure!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        let said = text(&output.stdout);
        ensure!(!said.trim().is_empty(), "{words:?} printed nothing");
        fits(&said, 80, &format!("{words:?}"))?;
    }
    Ok(())
}

#[test]
fn a_wider_terminal_has_whole_tables() -> Result<()> {
    let args = ["simulate", "--scenario", "steady", "--seeds", "1"];
    let narrow = text(&in_columns(60, &args)?.stdout);
    let wide = text(&in_columns(200, &args)?.stdout);
    let rows =
        |text: &str| text.lines().filter(|line| line.starts_with("ordered ")).count();
    ensure!(rows(&wide) == 1 && rows(&narrow) > 1, "{narrow}\n{wide}");
    fits(&narrow, 60, "60 columns")
}

/// What a terminal shows, which util-linux's `script` stands for.
fn on_a_terminal(words: &str) -> Result<Option<String>> {
    let found = Command::new("script").arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: what a terminal shows (util-linux's `script` is not here)");
        return Ok(None);
    }
    let program = programs::program("bothends")?;
    let line = format!("stty cols 80; exec {} {words}", program.display());
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("COLUMNS");
    let output = programs::run(&mut command, DEADLINE)?;
    ensure!(output.status.success(), "{words}: {}", text(&output.stdout));
    Ok(Some(text(&output.stdout)))
}

/// Without the sequences that move the cursor and colour.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            // CSI … up to its final letter.
            '\x1b' => drop(letters.by_ref().find(char::is_ascii_alphabetic)),
            '\r' => plain.push('\n'),
            other => plain.push(other),
        }
    }
    plain
}

#[test]
fn progress_stays_on_one_line_of_80_columns() -> Result<()> {
    let data = generated()?;
    let line = format!(
        "run --data {} --recipe imagenet-train --batch-size 4 --workers 1 --repeat 4",
        data.display()
    );
    let Some(shown) = on_a_terminal(&line)? else { return Ok(()) };
    let shown = plain(&shown);
    ensure!(shown.contains("ordered epoch 0 ▶"), "no progress: {shown}");
    ensure!(!shown.contains('◀'), "`ordered` walks from one end: {shown}");
    fits(&shown, 80, "progress")
}

#[test]
fn colours_are_for_terminals_and_for_those_who_ask() -> Result<()> {
    let args = ["simulate", "--scenario", "stedy"];
    let said = |set: &[(&str, &str)]| -> Result<String> {
        let mut command = Command::new(programs::program("bothends")?);
        command.args(args).envs(set.iter().copied());
        Ok(text(&programs::run(&mut command, DEADLINE)?.stderr))
    };
    ensure!(!said(&[])?.contains('\x1b'), "a pipe has no colours");
    ensure!(said(&[("CLICOLOR_FORCE", "1")])?.contains("\x1b[1;31merror:"));
    ensure!(!said(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")])?.contains('\x1b'));
    let help = |set: &[(&str, &str)]| -> Result<String> {
        let mut command = Command::new(programs::program("bothends")?);
        command.arg("--help").envs(set.iter().copied());
        Ok(text(&programs::run(&mut command, DEADLINE)?.stdout))
    };
    ensure!(!help(&[])?.contains('\x1b'));
    ensure!(help(&[("CLICOLOR_FORCE", "1")])?.contains('\x1b'));
    Ok(())
}

#[test]
fn as_much_is_said_as_was_asked_for() -> Result<()> {
    let data = generated()?.display().to_string();
    let args = ["run", "--data", &data, "--recipe", "imagenet-train", "--workers", "1"];
    let args = [&args[..], &["--batch-size", "8", "--measure-alone", "0.2"]].concat();
    let with = |more: &[&'static str]| bothends(&[&args[..], more].concat());
    let usual = with(&[])?;
    let quiet = with(&["--quiet"])?;
    ensure!(quiet.stderr.is_empty(), "{}", text(&quiet.stderr));
    ensure!(text(&quiet.stdout).contains("images/s"));
    let verbose = text(&with(&["--verbose"])?.stderr);
    ensure!(text(&usual.stderr).contains('…'), "{}", text(&usual.stderr));
    ensure!(verbose.contains(" s] "), "{verbose}");
    let both = with(&["--quiet", "--verbose"])?;
    ensure!(both.status.code() == Some(2), "{both:?}");
    Ok(())
}

#[test]
fn without_recovery_it_is_said_what_is_shown() -> Result<()> {
    let args = ["simulate", "--scenario", "device-dies", "--seeds", "1"];
    let off = text(&bothends(&[&args[..], &["--recovery", "off"]].concat())?.stdout);
    ensure!(off.contains("hangs"), "{off}");
    let said = off.replace('\n', " ");
    ensure!(said.contains("as any strategy does without recovery"), "{off}");
    let on = text(&bothends(&args)?.stdout);
    ensure!(!on.contains("recovery off") && !on.contains("hangs"), "{on}");
    Ok(())
}

/// What there is no room for is said once; who reads no further misses nothing.
#[test]
fn a_result_that_cannot_be_printed_fails_the_command() -> Result<()> {
    let run = |args: &[&str], out: Stdio| -> Result<(Option<i32>, String)> {
        let mut command = Command::new(programs::program("bothends")?);
        let command = command.args(args).stdin(Stdio::null()).stdout(out);
        let output = command.stderr(Stdio::piped()).spawn()?.wait_with_output()?;
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    };
    for args in [
        &["--help"][..],
        &["--version"],
        &["completions", "bash"],
        &["simulate", "--list"],
        &["simulate", "--scenario", "steady", "--json", "-"],
        &["inspect", "imagenet-eval"],
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full")?;
        let line = "error: cannot write to standard output: No space left on device (os error \
                    28); the result is incomplete\n";
        ensure!(run(args, full.into())? == (Some(1), line.to_owned()), "{args:?}");
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        ensure!(run(args, writer.into())? == (Some(0), String::new()), "{args:?}");
    }
    Ok(())
}

/// A log on a full disk, or whose reader has gone, panicked the run at its first note, and an agent at its
/// first host.
#[test]
fn a_log_that_takes_nothing_ends_nothing() -> Result<()> {
    let full = || std::fs::File::options().write(true).open("/dev/full");
    let run = |data: &Path, device: &str| -> Result<Command> {
        let mut command = Command::new(programs::program("bothends")?);
        command.args(["run", "--recipe", "imagenet-train", "--batch-size", "4"]);
        command.args(["--side-index", "off", "--csd", device, "--data"]).arg(data);
        command.stdout(Stdio::null()).stderr(full()?);
        Ok(command)
    };
    // It has a note to say, of a device that is not there.
    let ended = run(&generated()?, "tcp://127.0.0.1:1")?.status()?;
    ensure!(ended.code() == Some(0), "{ended}");
    let ended = run(Path::new("/nonexistent"), "tcp://127.0.0.1:1")?.status()?;
    ensure!(ended.code() == Some(1), "{ended}");

    let folder = tempfile::tempdir()?;
    let address = format!("unix://{}", folder.path().join("socket").display());
    let mut agent = Command::new(programs::program("bothends-agent")?);
    agent.args(["--listen", &address, "--log", "json", "--once", "--cache", "off"]);
    agent.arg("--data-root").arg(generated()?);
    let mut agent = agent.stdout(full()?).stderr(full()?).spawn()?;
    let listens = || folder.path().join("socket").exists();
    ensure!(programs::eventually(DEADLINE, listens), "{:?}", agent.try_wait());
    let ended = run(&generated()?, &address)?.arg("--require-devices").status();
    let served = programs::eventually(DEADLINE, || !matches!(agent.try_wait(), Ok(None)));
    let _ = agent.kill();
    let code = agent.wait()?.code();
    ensure!(ended?.code() == Some(0), "the agent did not serve it");
    ensure!(served && code == Some(0), "{code:?}");
    Ok(())
}
