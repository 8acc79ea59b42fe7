//! The report, by its figures, which must add up, and in a real browser: every plot is there, nothing is cut or lies over another, text
//! can be told from what is behind it, in wide and narrow windows, light and dark. So are a single run's
//! page and a contact sheet.
//!
//! Needs Chromium (`scripts/install-packages browser`); a skip is printed where there is none.
//! Screenshots lie in `target/report/`.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_tests::{generated, programs};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(300);

/// Appended to a copy of the page: what it finds stands in the element `#found`.
const LOOK: &str = include_str!("page.js");

/// A window and a reader's wish.
struct View {
    name: &'static str,
    width: u32,
    is_dark: bool,
}

const VIEWS: [View; 4] = [
    View { name: "wide", width: 1400, is_dark: false },
    View { name: "wide-dark", width: 1400, is_dark: true },
    View { name: "narrow", width: 400, is_dark: false },
    View { name: "narrow-dark", width: 400, is_dark: true },
];

/// The folder with the demo's page and summary; made by the first test that asks.
fn demo() -> Result<&'static Path> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING.lock();
    if FOLDER.get().is_none() {
        let folder = programs::build_folder()?.parent().context("target")?.join("report");
        fs::create_dir_all(&folder)?;
        programs::program("firmware-sim")?;
        bothends(&["demo", "--quick", "--out", path(&folder)])?;
        let _ = FOLDER.set(folder);
    }
    FOLDER.get().map(PathBuf::as_path).context("a folder")
}

fn bothends(args: &[&str]) -> Result<()> {
    let mut command = Command::new(programs::program("bothends")?);
    let output = programs::run(command.args(args), PATIENCE)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{args:?}: {said}");
    Ok(())
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_demo_s_page_looks_right_in_a_browser() -> Result<()> {
    let Some(browser) = Browser::find() else {
        eprintln!(
            "skipped: the report in a browser (no chromium; scripts/install-packages browser)"
        );
        return Ok(());
    };
    let folder = demo()?;
    let n_runs = 5;
    let page = folder.join("report.html");
    for (view, found) in VIEWS.iter().zip(browser.has_no_fault("report", &page, folder)?)
    {
        ensure!(found["width"] == view.width, "{}: {found}", view.name);
        ensure!(found["dark"] == view.is_dark, "{}: {found}", view.name);
        for (plot, n) in [
            ("speed", 1),
            ("rate", n_runs),
            ("ends", 3), // mte, wrr, relaxed
            ("horizon", 1),
            ("time", 1),
            ("waiting", n_runs),
            ("cores", n_runs),
            ("memory", n_runs),
            ("energy-modelled", 1),
        ] {
            ensure!(found["plots"][plot] == n, "{}: {plot} in {found}", view.name);
        }
    }
    Ok(())
}

/// A run alone compares nothing and has no accelerator; a sheet has long names and many pictures.
#[test]
fn other_pages_look_right_in_a_browser() -> Result<()> {
    let Some(browser) = Browser::find() else {
        eprintln!("skipped: a run's page and a contact sheet in a browser (no chromium)");
        return Ok(());
    };
    let folder = programs::build_folder()?.parent().context("target")?.join("report");
    fs::create_dir_all(&folder)?;
    let (run, sheet) = (folder.join("run.html"), folder.join("sheet.html"));
    let data = generated()?;
    let of_data = ["--data", path(&data), "--recipe", "imagenet-train", "--workers", "1"];
    let shown = ["--epochs", "2", "--digest", "--report", path(&run)];
    bothends(&[&["run"][..], &of_data, &shown].concat())?;
    // Nothing computes in it, so nothing starves, and its epochs are of different samples.
    let html = fs::read_to_string(&run)?;
    ensure!(html.contains("This run had no accelerator"), "{html}");
    for gone in ["host alone:", "<b>–</b>", " computing + ", "This is a bug"] {
        ensure!(!html.contains(gone), "{gone}");
    }
    let recipe = "torchvision-resnet50-v2";
    let few = ["--samples", "4", "--epochs", "3", "--sheet", path(&sheet)];
    bothends(&[&["inspect", recipe][..], &few].concat())?;
    let html = fs::read_to_string(&sheet)?;
    ensure!(
        html.contains("<li>mixup: ") || html.contains("<li>cutmix: "),
        "how it mixes"
    );
    browser.has_no_fault("run", &run, &folder)?;
    browser.has_no_fault("sheet", &sheet, &folder)?;
    Ok(())
}

/// What a reader may add up, of every strategy of the demo.
#[test]
fn the_demo_s_figures_add_up() -> Result<()> {
    let mut off = time_that_is_off(demo()?)?;
    // On a busy machine, a thread may be stopped between the end of a wait and its look at the clock.
    for _ in 0..4 {
        if off.is_empty() {
            break;
        }
        let folder = tempfile::tempdir()?;
        bothends(&["demo", "--quick", "--out", path(folder.path())])?;
        off = time_that_is_off(folder.path())?;
    }
    ensure!(off.is_empty(), "{off:?}");
    Ok(())
}

/// Fails where counts or sums do not add up: in the summary, on the page, and between the two. Returns
/// where times do not, which two threads measure.
fn time_that_is_off(folder: &Path) -> Result<Vec<String>> {
    let mut off = Vec::new();
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("summary.json"))?)?;
    let page = fs::read_to_string(folder.join("report.html"))?;
    let data = page.split("id=\"data\">").nth(1).context("the page's data")?;
    let page: Value =
        serde_json::from_str(data.split("</script>").next().unwrap_or_default())?;
    let note = page["note"].as_str().context("a note")?;
    ensure!(note.contains("the device is attached and idle"), "{note}");
    let (epochs, runs) = (list(&summary, "/epochs")?, list(&page, "/runs")?);
    ensure!(epochs.len() == 5 && runs.len() == 5, "{} {}", epochs.len(), runs.len());
    let mut modelled = 0.0;
    for (epoch, run) in epochs.iter().zip(runs) {
        let name = epoch["strategy"].as_str().context("a name")?;
        let of = |key: &str| number(epoch, key);
        let (seconds, busy_s) = (of("/seconds")?, of("/accelerator/busy_s")?);
        let idle_s = of("/accelerator/idle_s")?;
        // The accelerator has a clock of its own, which catches up on steps that began late: it can
        // be ahead of the waits by as much as the machine was late, but never of the epoch.
        ensure!(busy_s <= seconds, "{name}: busy for {busy_s} s of {seconds} s");
        let waits = epoch["accelerator"]["stall_by"].as_object().context("waits")?;
        let waits: f64 = waits.values().filter_map(Value::as_f64).sum();
        let off_s = idle_s - waits;
        if off_s.abs() > 0.02 * idle_s + 0.01 {
            off.push(format!("{name}: {off_s} s have no cause"));
        }
        let front = of("/front/batches")?;
        let back = number(&epoch["back"][0], "/batches")?;
        ensure!(front + back == of("/batches")?, "{name}: {front} and {back}");
        for (figure, on_page) in [
            ("/seconds", "/seconds"),
            ("/images_per_s", "/images_per_s"),
            ("/samples", "/samples"),
            ("/accelerator/busy_s", "/busy_s"),
            ("/accelerator/idle_s", "/idle_s"),
            ("/accelerator/utilisation", "/utilisation"),
            ("/front/batches", "/front_batches"),
            ("/rescued", "/rescued"),
        ] {
            let (one, other) = (of(figure)?, number(run, on_page)?);
            ensure!((one - other).abs() < 1e-9, "{name} {figure}: {one}, {other}");
        }
        ensure!(epoch["accelerator"]["stall_by"] == run["stall"], "{name}: {run}");
        ensure!(epoch["energy"] == run["energy"], "{name}: {}", run["energy"]);
        modelled += adds_up(&epoch["energy"])?;
    }
    let whole = adds_up(&summary["energy"])?;
    ensure!(modelled <= whole * 1.001, "{modelled} J of epochs, {whole} J of the run");
    if modelled <= 0.5 * whole {
        off.push(format!("{modelled} J of epochs, {whole} J of the run"));
    }
    Ok(off)
}

/// The modelled total, which is the sum of its domains; and no joule is there under two names.
fn adds_up(energy: &Value) -> Result<f64> {
    let is_modelled = |figure: &&Value| {
        figure["source"].as_str().is_some_and(|source| source.starts_with("modelled("))
    };
    let domains = list(energy, "/domains")?;
    let parts: Vec<&Value> = domains.iter().filter(is_modelled).collect();
    let mut names: Vec<String> = parts
        .iter()
        .map(|figure| figure["name"].to_string().replace([',', ' ', '"'], ""))
        .collect();
    let n_names = names.len();
    names.sort();
    names.dedup();
    ensure!(names.len() == n_names, "a domain is there twice: {parts:?}");
    let total = list(energy, "/totals")?.iter().find(is_modelled).context("a total")?;
    for key in ["/joules", "/low", "/high"] {
        let sum: f64 =
            parts.iter().filter_map(|figure| figure.pointer(key)?.as_f64()).sum();
        let said = number(total, key)?;
        ensure!((sum - said).abs() < 1e-9 * said.max(1.0), "{key}: {sum} and {said}");
    }
    number(total, "/joules")
}

fn number(value: &Value, key: &str) -> Result<f64> {
    value
        .pointer(key)
        .and_then(Value::as_f64)
        .with_context(|| format!("{key} in {value}"))
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value.pointer(key).and_then(Value::as_array).with_context(|| key.to_owned())
}

#[test]
fn a_fault_on_a_page_is_found() -> Result<()> {
    let Some(browser) = Browser::find() else {
        eprintln!("skipped: faults of a page in a browser (no chromium)");
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let page = folder.path().join("page.html");
    fs::write(
        &page,
        "<!doctype html><body style=\"background:#fff\"><main>\
         <p style=\"color:#ccc\">pale</p><p style=\"width:3000px\">wide</p>\
         <svg class=\"plot\" data-plot=\"x\" width=\"200\" height=\"50\">\
         <text x=\"20\" y=\"30\">one</text><text x=\"22\" y=\"31\">two</text>\
         <text x=\"190\" y=\"30\">cut off</text></svg></main></body>",
    )?;
    let found = browser.look(&page, &VIEWS[0], None)?.to_string();
    for fault in ["contrast", "beyond the edge", "overlap", "cut: ", "the page is 30"] {
        ensure!(found.contains(fault), "{fault} is not in {found}");
    }
    Ok(())
}

/// Chromium without a window.
struct Browser(PathBuf);

impl Browser {
    fn find() -> Option<Self> {
        let path = std::env::var_os("PATH")?;
        let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let mut places =
            names.iter().flat_map(|name| folders.iter().map(move |f| f.join(name)));
        places.find(|place| place.is_file()).map(Self)
    }

    fn command(&self, view: &View, height: u64, profile: &Path) -> Command {
        let mut command = Command::new(&self.0);
        command.args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ]);
        command.args([
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-extensions",
        ]);
        command.arg(format!("--user-data-dir={}", profile.display()));
        // A window is never narrower than 500; a screen is, and it is filled. The browser keeps a
        // strip of its height.
        let height = height + 100;
        command.arg(format!("--screen-info={{{}x{height}}}", view.width));
        command.arg("--start-fullscreen");
        let scheme = u8::from(!view.is_dark);
        command.arg(format!("--blink-settings=preferredColorScheme={scheme}"));
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// What the page's own elements say of themselves; photographed on the way, so high, if that is asked for.
    fn look(
        &self,
        page: &Path,
        view: &View,
        picture: Option<(u64, &Path)>,
    ) -> Result<Value> {
        let folder = tempfile::tempdir()?;
        let copy = folder.path().join("page.html");
        let html = fs::read_to_string(page)?;
        let script = format!("<script>\n{LOOK}</script></body>");
        fs::write(&copy, html.replace("</body>", &script))?;
        let height = picture.map_or(2000, |(height, _)| height);
        let mut command = self.command(view, height, folder.path());
        command.args(["--virtual-time-budget=4000", "--dump-dom"]);
        if let Some((_, to)) = picture {
            command.arg(format!("--screenshot={}", to.display()));
        }
        command.arg(format!("file://{}", copy.display()));
        let dom = programs::run_reading(&mut command, PATIENCE)?;
        let found = dom.split("id=\"found\">").nth(1).context("the page did not look")?;
        Ok(serde_json::from_str(found.split("</script>").next().unwrap_or_default())?)
    }

    /// Photographs the page in every view, and fails where its elements find a fault of themselves; what
    /// they found. A dark page is as high as a light one, which is looked at once more to know that.
    fn has_no_fault(&self, name: &str, page: &Path, to: &Path) -> Result<Vec<Value>> {
        let mut height = 0;
        let mut all = Vec::new();
        for view in &VIEWS {
            if !view.is_dark {
                let found = self.look(page, view, None)?;
                height = found["height"].as_u64().context("height")?;
            }
            let picture = to.join(format!("{name}-{}.png", view.name));
            let found = self.look(page, view, Some((height, &picture)))?;
            ensure!(fs::metadata(&picture)?.len() > 50_000, "an empty picture");
            let faults = found["faults"].as_array().context("faults")?;
            ensure!(faults.is_empty(), "{name}, {}: {faults:#?}", view.name);
            all.push(found);
        }
        Ok(all)
    }
}
