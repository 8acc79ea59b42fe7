//! The report in a real browser: every plot is there, nothing is cut or lies over another, text
//! can be told from what is behind it, in wide and narrow windows, light and dark.
//!
//! Needs Chromium (`scripts/install-packages browser`); a skip is printed where there is none.
//! Screenshots lie in `target/report/`.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bothends_tests::programs;
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
    View { name: "wide", width: 1280, is_dark: false },
    View { name: "wide-dark", width: 1280, is_dark: true },
    View { name: "narrow", width: 400, is_dark: false },
    View { name: "narrow-dark", width: 400, is_dark: true },
];

#[test]
fn the_demo_s_page_looks_right_in_a_browser() -> Result<()> {
    let Some(browser) = Browser::find() else {
        eprintln!(
            "skipped: the report in a browser (no chromium; scripts/install-packages browser)"
        );
        return Ok(());
    };
    let folder = programs::build_folder()?.parent().context("target")?.join("report");
    fs::create_dir_all(&folder)?;
    programs::program("firmware-sim")?;
    let mut demo = Command::new(programs::program("bothends")?);
    let output =
        programs::run(demo.args(["demo", "--quick", "--out"]).arg(&folder), PATIENCE)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let n_runs = 5;
    let page = folder.join("report.html");
    for view in &VIEWS {
        let found = browser.look(&page, view)?;
        ensure!(found["width"] == view.width, "{}: {found}", view.name);
        ensure!(found["dark"] == view.is_dark, "{}: {found}", view.name);
        for (plot, n) in [
            ("speed", 1),
            ("rate", n_runs),
            ("ends", n_runs),
            ("stall", 1),
            ("waiting", n_runs),
            ("cores", n_runs),
            ("memory", n_runs),
            ("energy-modelled", 1),
        ] {
            ensure!(found["plots"][plot] == n, "{}: {plot} in {found}", view.name);
        }
        let faults = found["faults"].as_array().context("faults")?;
        ensure!(faults.is_empty(), "{}: {faults:#?}", view.name);
        let height = found["height"].as_u64().context("height")?;
        let picture = folder.join(format!("{}.png", view.name));
        browser.photograph(&page, view, height, &picture)?;
        ensure!(fs::metadata(&picture)?.len() > 50_000, "an empty picture");
    }
    Ok(())
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
    let found = browser.look(&page, &VIEWS[0])?.to_string();
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

    /// What the page's own elements say of themselves.
    fn look(&self, page: &Path, view: &View) -> Result<Value> {
        let folder = tempfile::tempdir()?;
        let copy = folder.path().join("page.html");
        let html = fs::read_to_string(page)?;
        let script = format!("<script>\n{LOOK}</script></body>");
        fs::write(&copy, html.replace("</body>", &script))?;
        let mut command = self.command(view, 2000, folder.path());
        command.args(["--virtual-time-budget=4000", "--dump-dom"]);
        command.arg(format!("file://{}", copy.display()));
        let dom = programs::run_reading(&mut command, PATIENCE)?;
        let found = dom.split("id=\"found\">").nth(1).context("the page did not look")?;
        Ok(serde_json::from_str(found.split("</script>").next().unwrap_or_default())?)
    }

    fn photograph(&self, page: &Path, view: &View, height: u64, to: &Path) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut command = self.command(view, height, folder.path());
        command.arg(format!("--screenshot={}", to.display()));
        command.arg(format!("file://{}", page.display()));
        programs::run_reading(&mut command, PATIENCE).map(drop)
    }
}
