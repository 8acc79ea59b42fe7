//! The programs under test: where they are, and whether any is still running.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// The folder with the built programs: the one that the test program's own folder lies in.
pub fn build_folder() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let folder = exe.ancestors().nth(2).context("a test program lies in deps/")?;
    Ok(folder.to_owned())
}

/// The path of `bothends`, `bothends-agent` or `firmware-sim`, built in the profile of the
/// test program. Cargo does not build other packages' programs for a test, so the first
/// test that asks does.
pub fn program(name: &str) -> Result<PathBuf> {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| build().map_err(|e| format!("{e:#}")));
    if let Err(why) = built {
        anyhow::bail!("{why}");
    }
    let path = build_folder()?.join(name);
    ensure!(path.is_file(), "{} was not built", path.display());
    Ok(path)
}

/// Names the build folder if everything has already been built there. Building only some packages
/// selects other features of their dependencies, and so rebuilds those.
const BUILT: &str = "BOTHENDS_BUILT";

fn build() -> Result<()> {
    let folder = build_folder()?;
    if std::env::var_os(BUILT).is_some_and(|built| Path::new(&built) == folder) {
        return Ok(());
    }
    let mut cargo =
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--locked", "--offline", "-p", "bothends", "--bins"]);
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let target = folder.parent().context("profiles lie in the target folder")?;
    cargo.arg("--target-dir").arg(target);
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let output = cargo.output().context("cargo")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the programs do not build: {words}");
    Ok(())
}

/// Runs a program to its end; a program that takes longer than `deadline` is killed and
/// fails the test.
pub fn run(command: &mut Command, deadline: Duration) -> Result<Output> {
    use std::process::Stdio;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let ends = Instant::now() + deadline;
    // Outputs here are far below a pipe's 64 KiB, so nobody waits for a reader.
    while child.try_wait()?.is_none() {
        if Instant::now() > ends {
            child.kill()?;
            child.wait()?;
            anyhow::bail!("{command:?} did not end within {deadline:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(child.wait_with_output()?)
}

/// Runs a program that prints a lot, and returns what it printed; it must succeed.
pub fn run_reading(command: &mut Command, deadline: Duration) -> Result<String> {
    // Tests of one program run at the same time.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, call) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(format!("bothends-test-{process}-{call}.out"));
    let file = std::fs::File::create(&path)?;
    let mut child = command.stdin(std::process::Stdio::null()).stdout(file).spawn()?;
    let ended = eventually(deadline, || !matches!(child.try_wait(), Ok(None)));
    if !ended {
        child.kill()?;
    }
    let status = child.wait()?;
    let output = std::fs::read_to_string(&path)?;
    std::fs::remove_file(&path)?;
    ensure!(ended, "{command:?} did not end within {deadline:?}");
    ensure!(status.success(), "{command:?}: {status}");
    Ok(output)
}

/// Processes whose command line contains `text`, this one left out.
pub fn processes_with(text: &str) -> Result<Vec<u32>> {
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        let name =
            path.file_name().and_then(|n| n.to_str()).and_then(|n| n.parse::<u32>().ok());
        let Some(id) = name.filter(|id| *id != own) else { continue };
        // A process may end while we look.
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(text) && !is_zombie(&path) {
            found.push(id);
        }
    }
    Ok(found)
}

fn is_zombie(process: &Path) -> bool {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}

/// Waits until `done` holds; false when it does not within `deadline`.
pub fn eventually(deadline: Duration, mut done: impl FnMut() -> bool) -> bool {
    let ends = Instant::now() + deadline;
    loop {
        if done() {
            return true;
        }
        if Instant::now() > ends {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
