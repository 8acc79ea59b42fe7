//! The house rules that neither the compiler nor a lint holds: who may import whom, where a
//! third-party package lives, where `unsafe` is opened, and what a file may look like.
//!
//! Every rule is a table and a loop. A new line in a table is a change of the design: say in
//! the commit why. The rules for functions (length, parameters, bools) are lints in
//! `Cargo.toml`. Read `ARCHITECTURE.md` for the picture behind the tables.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

#[path = "house/unsafe_modules.rs"]
mod unsafe_modules;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use unsafe_modules::UNSAFE_MODULES;

/// Who may import whom (ours). Dev- and build-dependencies count.
const IMPORTS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("dataset", &["core"]),
    ("ops", &["core"]),
    ("io", &["core", "dataset"]),
    ("storage", &["dataset", "io"]),
    ("side-index", &["core", "dataset", "io"]),
    ("decompress", &["core", "dataset", "io", "side-index"]),
    ("energy", &[]),
    ("figures", &["energy"]),
    ("scrape", &[]),
    ("nvme", &[]),
    ("preprocess", &["core", "ops", "nvme"]),
    ("slots", &["core"]),
    ("gpu", &["core", "slots"]),
    ("gpu-decode", &["core", "dataset", "ops", "io", "side-index", "slots", "gpu"]),
    ("csd", &["core", "dataset", "io", "nvme", "slots"]),
    ("accel", &[]),
    (
        "agent",
        &[
            "core",
            "dataset",
            "decompress",
            "ops",
            "side-index",
            "scrape",
            "slots",
            "csd",
            "storage",
        ],
    ),
    (
        "runtime",
        &[
            "core",
            "dataset",
            "decompress",
            "ops",
            "io",
            "side-index",
            "slots",
            "csd",
            "accel",
            "energy",
            "figures",
            "gpu",
            "gpu-decode",
            "storage",
        ],
    ),
    ("simulate", &["core"]),
    ("report", &["core", "figures"]),
    ("samples", &["core"]),
    ("pack", &["core", "dataset", "decompress", "ops", "io", "storage"]),
    ("bench", &["core", "dataset", "ops", "io", "figures"]),
    ("top", &["scrape"]),
    ("firmware-sim", &["core", "nvme", "preprocess", "slots", "csd", "agent"]),
    (
        "cli",
        &[
            "core", "csd", "agent", "runtime", "energy", "samples", "report", "scrape",
            "simulate", "pack", "bench", "top",
        ],
    ),
    ("capi", &["core", "runtime"]),
    ("python", &["core", "runtime", "agent", "cli", "firmware-sim"]),
    ("bothends", &["core", "runtime", "agent", "cli", "firmware-sim"]),
    ("long-link", &[]), // a program of the tests
];

/// Whole-system tests may import every crate.
const IMPORTS_ALL: &str = "tests";

/// Where a third-party package lives. A package without a line does not get in.
const HOMES: &[(&str, &[&str])] = &[
    ("blake2s_simd", &["pack"]),
    ("md-5", &["pack"]),
    ("anyhow", &["cli", "agent", "firmware-sim", "tests"]),
    ("clap", &["cli", "agent", "firmware-sim"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("allocation-counter", &["gpu", "ops"]), // in tests
    ("bytes", &["storage"]),
    ("cap", &["firmware-sim", "runtime", "storage", "tests"]), // in tests
    ("cbindgen", &["capi"]),                                   // in tests
    ("crossbeam", &["runtime"]),
    ("crossbeam-utils", &["python"]), // a feature, see there
    ("cudarc", &["gpu"]),
    ("dashmap", &["agent"]),
    ("hmac", &["csd", "side-index"]),
    ("indicatif", &["cli"]),
    ("io-uring", &["io"]),
    ("jiff", &["cli"]),
    ("landlock", &["agent"]),
    ("libc", &["agent", "energy"]),
    ("libloading", &["gpu"]),
    ("listenfd", &["agent"]),
    ("loom", &["core", "slots"]), // only in builds with `--cfg loom`: what threads share
    ("memchr", &["ops"]),
    (
        "nix",
        &[
            "io",
            "storage",
            "csd",
            "energy",
            "runtime",
            "slots",
            "gpu",
            "firmware-sim",
            "long-link",
        ],
    ),
    ("nvml-wrapper", &["energy"]),
    ("crc32fast", &["ops"]),
    ("crc32c", &["dataset", "nvme", "firmware-sim"]),
    ("fax", &["ops"]),
    ("fdeflate", &["ops"]),
    ("futures-util", &["storage"]),
    ("http-body-util", &["storage"]),
    ("hyper", &["storage"]),
    ("hyper-util", &["storage"]),
    ("flate2", &["decompress"]),
    ("parquet", &["decompress"]),
    ("snap", &["decompress"]),
    ("zstd", &["decompress"]),
    ("png", &["ops", "report"]), // in ops in tests
    ("weezl", &["ops"]),
    ("pyo3", &["python"]),
    (
        "serde_json",
        &[
            "core",
            "dataset",
            "csd",
            "accel",
            "energy",
            "figures",
            "runtime",
            "simulate",
            "report",
            "cli",
            "capi",
            "firmware-sim",
            "python",
            "tests",
        ],
    ),
    ("ratatui", &["top"]),
    ("rcgen", &["csd", "storage", "tests"]), // in tests
    ("rustix", &["io"]),
    ("num-traits", &["python"]), // a feature, see there
    ("object_store", &["storage"]),
    ("redis", &["storage"]),
    ("rustls", &["csd", "storage"]),
    ("rustls-native-certs", &["storage"]),
    ("seccompiler", &["agent"]),
    ("sha2", &["csd", "side-index"]),
    ("signal-hook", &["agent", "cli"]),
    ("snow", &["csd"]),
    ("strsim", &["bench", "core"]),
    ("terminal_size", &["cli"]),
    ("tokio", &["storage"]),
    ("tokio-rustls", &["storage"]),
    ("wasmtime", &["firmware-sim"]),
    (
        "twox-hash",
        &[
            "core",
            "dataset",
            "ops",
            "preprocess",
            "csd",
            "agent",
            "decompress",
            "runtime",
            "pack",
            "firmware-sim",
        ],
    ),
];

/// Dev-dependencies that the tables above do not allow, each with what its tests need of it.
const GUESTS_IN_TESTS: &[(&str, &str, &str)] = &[
    ("bench", "samples", "makes images to measure"),
    ("bothends", "samples", "makes images for the examples"),
    ("bothends", "serde_json", "writes the examples' options"),
    ("capi", "samples", "makes images for C programs"),
    ("gpu-decode", "energy", "meters decoding for scripts/check-gpu"),
    ("gpu-decode", "serde_json", "writes the recipe of other sizes"),
    ("gpu-decode", "twox-hash", "gives hostile row groups the right checksum"),
    ("gpu", "ops", "compares what kernels make with what the host makes"),
    ("ops", "samples", "makes images to take apart"),
    ("preprocess", "samples", "makes images for batches"),
    ("ops", "serde_json", "reads the golden files' list"),
    ("runtime", "agent", "joins `loopback` to a real server"),
];

/// Packages that live anywhere: they touch no hardware and hide no data path.
const AT_HOME_EVERYWHERE: &[&str] = &["serde", "thiserror", "proptest", "tempfile"];

/// Crates in which integers may overflow in a release, because checks cost too much there.
const UNCHECKED: &[&str] = &["ops"];

/// The files of those crates that read numbers from input: there, the compiler rejects arithmetic that
/// could overflow. An attribute of a module also covers its children. Everything else in `ops` is
/// kernels and their callers, on sizes that these files have checked.
const PARSERS: &[&str] = &[
    "crates/ops/src/decode.rs",
    "crates/ops/src/jpeg/file.rs",
    "crates/ops/src/jpeg/entropy/entry_points.rs",
    "crates/ops/src/jpeg/entropy/note.rs",
    "crates/ops/src/jpeg/entropy/point.rs",
    "crates/ops/src/jpeg/store/stored.rs",
];

/// Longest file, in lines before its tests.
const MAX_LINES: usize = 600;

/// Names that say nothing about what is in a module.
const FORBIDDEN_MODULES: &[&str] =
    &["utils", "util", "common", "misc", "manager", "prelude", "helpers", "helper"];

/// The project speaks only of itself: no path of anybody's machine, no paper that a checkout
/// does not hold. (Split, so that this file does not hold the words itself.)
const FORBIDDEN_WORDS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("sha", "red/"),
    concat!("des", "ign.md"),
    concat!("sty", "le.md"),
];

/// The only file that may name the folder next to the checkout for test data.
const NAMES_TEST_DATA: &str = ".ci/run";

/// Folders that builds and runs make, not people.
const MADE_FOLDERS: &[&str] = &["target", "demo-out", "__pycache__"];

#[test]
fn a_crate_imports_only_what_its_row_allows() {
    let mut broken = Vec::new();
    for package in packages().iter().filter(|package| package.name != IMPORTS_ALL) {
        let importer = package.name.as_str();
        let Some((_, allowed)) = IMPORTS.iter().find(|(of, _)| *of == importer) else {
            broken.push(format!("{importer} has no line in the import table"));
            continue;
        };
        for import in package.dependencies.iter().filter(|d| d.ours) {
            let name = import.name.as_str();
            if !allowed.contains(&name) && !import.is_guest_of(importer) {
                broken.push(format!("{importer} may not import {name}"));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn the_import_table_has_no_cycle() {
    // A line may name only crates of lines above it, so the table is in rows.
    let mut broken = Vec::new();
    for (idx, (name, allowed)) in IMPORTS.iter().enumerate() {
        let above: Vec<&str> = IMPORTS[..idx].iter().map(|(above, _)| *above).collect();
        for import in allowed.iter().filter(|import| !above.contains(import)) {
            broken
                .push(format!("the line of {name} names {import}, not a line above it"));
        }
    }
    assert_none(&broken);
}

#[test]
fn a_third_party_package_lives_in_its_home() {
    let mut broken = Vec::new();
    for package in packages() {
        for dependency in package.dependencies.iter().filter(|d| !d.ours) {
            let (name, wanted_by) = (dependency.name.as_str(), package.name.as_str());
            if AT_HOME_EVERYWHERE.contains(&name) || dependency.is_guest_of(wanted_by) {
                continue;
            }
            match HOMES.iter().find(|(guest, _)| *guest == name) {
                None => {
                    broken.push(format!("{name} (wanted by {wanted_by}) has no home"));
                }
                Some((_, homes)) if !homes.contains(&wanted_by) => {
                    broken.push(format!("{name} does not live in {wanted_by}"));
                }
                Some(_) => {}
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn nothing_is_allowed_that_nobody_uses() {
    let packages = packages();
    let uses = |importer: &str, name: &str| {
        let named = packages.iter().filter(|package| package.name == importer);
        let mut dependencies = named.flat_map(|package| &package.dependencies);
        dependencies.any(|dependency| dependency.name == name)
    };
    let ours = IMPORTS.iter().flat_map(|(importer, allowed)| {
        allowed.iter().map(move |name| (*importer, *name))
    });
    let theirs = HOMES
        .iter()
        .flat_map(|(name, homes)| homes.iter().map(move |home| (*home, *name)));
    let guests = GUESTS_IN_TESTS.iter().map(|(host, guest, _)| (*host, *guest));
    let unused = ours.chain(theirs).chain(guests).filter(|(of, name)| !uses(of, name));
    let unused = unused.map(|(of, name)| format!("{of} may have {name} and has it not"));
    assert_none(&unused.collect::<Vec<_>>());
}

#[test]
fn every_package_takes_the_one_lint_set() {
    let mut broken = Vec::new();
    for package in packages() {
        if !read(&package.manifest).contains("[lints]\nworkspace = true") {
            broken
                .push(format!("{} does not inherit the workspace's lints", package.name));
        }
    }
    assert_none(&broken);
}

#[test]
fn unsafe_is_opened_in_the_listed_modules_and_nowhere_else() {
    let listed: Vec<&str> = UNSAFE_MODULES.iter().map(|(file, _)| *file).collect();
    let opened: Vec<String> = rust_files()
        .into_iter()
        .filter(|file| opens_unsafe(&read(file)))
        .map(|file| relative(&file))
        .collect();
    let unlisted = opened
        .iter()
        .filter(|file| !listed.contains(&file.as_str()))
        .map(|file| format!("{file} opens `unsafe` and is not in UNSAFE_MODULES"));
    let unopened = listed
        .iter()
        .filter(|file| !opened.iter().any(|opened| opened == *file))
        .map(|file| format!("{file} is in UNSAFE_MODULES and does not open `unsafe`"));
    assert_none(&unlisted.chain(unopened).collect::<Vec<_>>());
}

#[test]
fn a_release_checks_its_sums_but_in_the_listed_crates() {
    let manifest = read(&root().join("Cargo.toml"));
    let said = |section: &str| {
        let lines = manifest.lines().skip_while(|line| *line != section).skip(1);
        let mut lines = lines.take_while(|line| !line.starts_with('['));
        lines.find_map(|line| line.strip_prefix("overflow-checks = ")).map(str::to_owned)
    };
    assert_eq!(said("[profile.release]").as_deref(), Some("true"));
    let mut unchecked: Vec<_> = packages().into_iter().map(|p| p.name).collect();
    unchecked.retain(|name| {
        said(&format!("[profile.release.package.bothends-{name}]")).is_some()
    });
    assert_eq!(unchecked, UNCHECKED);
    let mut broken = Vec::new();
    for file in PARSERS {
        let text = read(&root().join(file));
        let dense: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        if !dense.contains("#![deny(clippy::arithmetic_side_effects,") {
            broken.push(format!("{file} does not deny sums that may overflow"));
        }
    }
    assert_none(&broken);
}

#[test]
fn a_file_is_short_and_says_what_it_is() {
    let mut broken = Vec::new();
    for file in rust_files() {
        let text = read(&file);
        let n_lines = lines_before_tests(&text);
        let file = relative(&file);
        if !text.starts_with("//! ") {
            broken.push(format!("{file} does not open with `//!`"));
        }
        if n_lines > MAX_LINES {
            broken.push(format!("{file} has {n_lines} lines before its tests"));
        }
    }
    assert_none(&broken);
}

#[test]
fn a_module_is_named_for_what_it_holds() {
    let mut broken = Vec::new();
    for file in rust_files() {
        let path = relative(&file);
        let mut parts = path.split('/').map(|part| part.trim_end_matches(".rs"));
        if parts.any(|part| FORBIDDEN_MODULES.contains(&part)) {
            broken.push(format!("{path} needs a noun"));
        }
        for line in read(&file).lines().map(str::trim) {
            let name =
                line.split_once("mod ").and_then(|(_, rest)| rest.strip_suffix(" {"));
            if name.is_some_and(|name| FORBIDDEN_MODULES.contains(&name)) {
                broken.push(format!("`{line}` in {path} needs a noun"));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn every_configuration_is_json_and_somebody_reads_it() {
    let code: Vec<String> = rust_files().iter().map(|file| read(file)).collect();
    let mut broken = Vec::new();
    for file in files_under(&root().join("configs")) {
        let path = relative(&file);
        if path.ends_with("README.md") {
            continue;
        }
        let parsed = serde_json::from_str::<Value>(&read(&file));
        if !(path.ends_with(".json") && parsed.is_ok_and(|value| value.is_object())) {
            broken.push(format!("{path} is not a JSON object in a .json file"));
        }
        if !code.iter().any(|text| text.contains(&path)) {
            broken.push(format!("no Rust file names {path}: nobody parses it"));
        }
    }
    assert_none(&broken);
}

#[test]
fn the_project_speaks_only_of_itself() {
    let mut broken = Vec::new();
    for file in files_under(&root()) {
        let path = relative(&file);
        let text = read(&file);
        for word in FORBIDDEN_WORDS.iter().filter(|word| text.contains(**word)) {
            if path != NAMES_TEST_DATA {
                broken.push(format!("{path} names `{word}`"));
            }
        }
    }
    assert_none(&broken);
}

/// All that is wrong at once, one line each, so that one run is enough.
fn assert_none(broken: &[String]) {
    assert!(broken.is_empty(), "broken house rules:\n  {}", broken.join("\n  "));
}

/// A package of the workspace; names without the `bothends-` that all of ours carry.
struct Package {
    name: String,
    manifest: PathBuf,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    name: String,
    ours: bool,
    when: When,
}

#[derive(PartialEq)]
enum When {
    Always,
    WithFeature,
    InTests,
}

impl Dependency {
    fn is_guest_of(&self, host: &str) -> bool {
        let line =
            |(of, guest, _): &(&str, &str, &str)| *of == host && *guest == self.name;
        self.when == When::InTests && GUESTS_IN_TESTS.iter().any(line)
    }
}

/// What `cargo metadata` says of the workspace's packages.
fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().iter().map(package).collect()
}

fn package(value: &Value) -> Package {
    let dependencies = value["dependencies"].as_array().unwrap();
    Package {
        name: short_name(value),
        manifest: PathBuf::from(value["manifest_path"].as_str().unwrap()),
        dependencies: dependencies.iter().map(dependency).collect(),
    }
}

fn dependency(value: &Value) -> Dependency {
    let when = if value["kind"] == "dev" {
        When::InTests
    } else if value["optional"] == true {
        When::WithFeature
    } else {
        When::Always
    };
    Dependency { name: short_name(value), ours: value["path"].is_string(), when }
}

fn short_name(package: &Value) -> String {
    package["name"].as_str().unwrap().trim_start_matches("bothends-").to_owned()
}

/// Whether a file re-opens `unsafe_code`, however rustfmt breaks the attribute.
fn opens_unsafe(text: &str) -> bool {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let dense: String =
        code.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect();
    ["allow", "expect", "warn"]
        .iter()
        .any(|level| dense.contains(&format!("{level}(unsafe_code")))
}

/// Lines above the inline test module; a file without one counts whole.
fn lines_before_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].ends_with('{'))
        .unwrap_or(lines.len())
}

fn rust_files() -> Vec<PathBuf> {
    let files = files_under(&root()).into_iter();
    files.filter(|file| file.extension().is_some_and(|e| e == "rs")).collect()
}

/// All files below `folder` that people wrote, in no particular order.
fn files_under(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let hidden = name.starts_with('.') && name != ".ci";
            if hidden || MADE_FOLDERS.contains(&name) {
                continue;
            }
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

/// A file's text; fixtures that are not text are read as far as they are.
fn read(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned()
}

/// A path as people write it: from the root of the checkout, with `/`.
fn relative(file: &Path) -> String {
    file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
