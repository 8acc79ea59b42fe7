//! `docs/wire.md` is enough: a device written from that page alone, in Python, keeps to every clause
//! and finishes an epoch whose digest is the host's own; and what the page shows is so.
//!
//! The device is `tests/python_device.py`. Without its packages, which `scripts/check` installs into
//! `.venv`, a skip is printed. The messages on the page are compared in `crates/csd/tests/wire.rs`.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stderr, reason = "skips must be seen")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_agent::conformance::CLAUSES;
use bothends_core::ids::{Label, SampleId};
use bothends_core::recipe::Recipe;
use bothends_core::sample::{Encoding, Extent};
use bothends_dataset::Table;
use bothends_tests::attempts::until_a_device_takes_part;
use bothends_tests::programs::{program, run};
use bothends_tests::{Setup, cifar_batches};

const PATIENCE: Duration = Duration::from_secs(240);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page() -> Result<String> {
    Ok(std::fs::read_to_string(root().join("docs/wire.md"))?)
}

/// The bytes behind `<!-- golden NAME -->`.
fn golden(page: &str, name: &str) -> Result<String> {
    let (_, rest) = page
        .split_once(&format!("<!-- golden {name} -->\n```text\n"))
        .with_context(|| format!("the page has no {name}"))?;
    let block = rest.split_once("```").context("an end")?.0;
    let digits = |line: &str| line.split_whitespace().skip(1).collect::<String>();
    Ok(block.lines().map(digits).collect())
}

#[test]
fn the_page_has_every_clause_and_no_other() -> Result<()> {
    let page = page()?;
    let (_, table) = page.split_once("| clause | |\n|---|---|\n").context("a table")?;
    let rows: Vec<&str> =
        table.lines().take_while(|line| line.starts_with('|')).collect();
    let clauses = CLAUSES.iter();
    let expected: Vec<String> =
        clauses.map(|it| format!("| {} | {} |", it.number, it.sentence)).collect();
    ensure!(rows == expected, "put these into docs/wire.md:\n{}", expected.join("\n"));
    Ok(())
}

#[test]
fn the_recipes_on_the_page_are_canonical() -> Result<()> {
    let page = page()?;
    for name in ["raw", "cifar10-train"] {
        let recipe = Recipe::builtin(name).context("it is built in")?;
        let (json, hash) = (recipe.to_json(), format!("{:032x}", recipe.hash()));
        ensure!(page.contains(&json), "put this into docs/wire.md:\n{json}");
        ensure!(page.contains(&hash), "put this into docs/wire.md:\n{hash}");
    }
    Ok(())
}

#[test]
fn the_manifest_on_the_page_is_one() -> Result<()> {
    let hex = golden(&page()?, "manifest")?;
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16);
    let bytes = (0..hex.len()).step_by(2).map(byte).collect::<Result<Vec<u8>, _>>()?;
    let table = Table::decode(&bytes)?;
    ensure!(table.encode() == bytes);
    let encoding = Encoding::Planar { height: 1, width: 2, channels: 3 };
    ensure!(table.encoding() == encoding && table.n_samples() == 2);
    ensure!(table.class_names().collect::<Vec<_>>() == ["cat", "dog"]);
    let records = [(1, [1, 2, 3, 4, 5, 6], 1), (8, [7, 8, 9, 10, 11, 12], 0)];
    for (id, (offset, record, label)) in (0..).map(SampleId).zip(records) {
        let piece = table.piece(id, |_| None);
        let Extent { file, offset: at, len } = piece.extent;
        ensure!(table.file_path(file) == "pixels/a.bin" && (at, len) == (offset, 6));
        ensure!(table.label(id) == Label(label) && table.checksum(id).is_some());
        table.record(id, piece, &record)?;
    }
    Ok(())
}

/// A Python with the device's packages; nothing is installed here.
fn python(test: &str) -> Option<PathBuf> {
    let has_packages = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", "import numpy, xxhash"]);
        run(&mut command, PATIENCE).is_ok_and(|output| output.status.success())
    };
    let found = [root().join(".venv/bin/python"), "python3".into()]
        .into_iter()
        .find(has_packages);
    if found.is_none() {
        eprintln!("skipped: {test} (no Python with NumPy and xxhash)");
    }
    found
}

/// The Python device, killed when a test ends.
struct Device {
    child: Child,
    url: String,
}

impl Device {
    fn start(python: &Path, listen: &str, data: &Path, more: &[&str]) -> Result<Self> {
        let mut command = Command::new(python);
        command.arg(root().join("tests/python_device.py"));
        command.args(["--listen", listen, "--data-root"]).arg(data).args(more);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut line)?;
        let url =
            line.trim().strip_prefix("listening on ").unwrap_or_default().to_owned();
        ensure!(!url.is_empty(), "it said `{line}`");
        Ok(Self { child, url })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_device_written_from_the_page_keeps_to_every_clause() -> Result<()> {
    let Some(python) = python("clauses of a second device") else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let key = folder.path().join("key");
    std::fs::write(&key, "a key of at least sixteen bytes\n")?;
    let mut command = Command::new("chmod");
    ensure!(command.arg("600").arg(&key).status()?.success());
    let key = key.to_str().context("UTF-8")?.to_owned();
    let unix = format!("unix://{}", folder.path().join("door").display());
    for (listen, more) in
        [(unix.as_str(), vec![]), ("tcp://127.0.0.1:0", vec!["--key-file", key.as_str()])]
    {
        let device = Device::start(&python, listen, folder.path(), &more)?;
        let mut command = Command::new(program("bothends")?);
        command.args(["conform", &device.url, "--data"]).arg(folder.path()).args(&more);
        let output = run(&mut command, PATIENCE)?;
        let said = String::from_utf8(output.stdout)?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}{words}");
        // It has no decoder of image files, and without a key none is tried.
        let n_not_applicable =
            said.lines().filter(|line| line.starts_with("n/a")).count();
        ensure!(n_not_applicable == 1 + usize::from(more.is_empty()), "{said}");
        let left: Vec<_> = std::fs::read_dir(folder.path())?.collect::<Result<_, _>>()?;
        ensure!(!left.iter().any(|it| it.file_name() == "bothends-conform"), "{left:?}");
    }
    Ok(())
}

#[test]
fn an_epoch_with_a_device_written_from_the_page_has_the_hosts_digest() -> Result<()> {
    let Some(python) = python("an epoch of a second device") else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    cifar_batches(&data)?;
    let alone = Setup { recipe: "cifar10-train".to_owned(), ..Setup::new(&data) };
    let expected = alone.run()?;
    let unix = format!("unix://{}", folder.path().join("door").display());
    let device = Device::start(&python, &unix, &data, &[])?;
    let with = |strategy| Setup {
        strategy,
        devices: vec![device.url.clone()],
        require_devices: true,
        audit_percent: 20,
        ..alone.clone()
    };
    // Batches come from the back to the front; the host makes those that it would wait for.
    let epoch = until_a_device_takes_part(|| {
        let epoch = with("csd").run()?;
        ensure!(epoch.content_digest == expected.content_digest, "{epoch:?}");
        Ok(epoch)
    })?;
    ensure!(epoch.audited > 0, "{epoch:?}");
    let epoch = with("ordered").run()?;
    ensure!(epoch.stream_digest == expected.stream_digest, "{epoch:?}");
    Ok(())
}
