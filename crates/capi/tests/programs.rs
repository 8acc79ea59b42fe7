//! C programs against the installed library: built as a user would, run, and run where every
//! byte of memory is watched.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests; skips must be seen")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use bothends_samples::{GenerateConfig, generate};

/// The folder that these tests share and leave behind, in the build folder.
fn tmp() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("capi")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// Whether all of these can be run; a skip is printed elsewhere.
fn has(programs: &[&str]) -> bool {
    let is_there =
        |program: &&str| Command::new(program).arg("--version").output().is_ok();
    let missing = programs.iter().find(|program| !is_there(program));
    if let Some(program) = missing {
        eprintln!("skipped: a C program ({program} is not installed)");
    }
    missing.is_none()
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    output
}

fn words(command: &mut Command) -> Vec<String> {
    let output = String::from_utf8(run(command).stdout).unwrap();
    output.split_whitespace().map(str::to_owned).collect()
}

/// The build folder of this profile.
fn profile() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
}

/// Where the library was installed, by the script that users have.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let profile = profile();
        let prefix = tmp().join("prefix");
        let mut script = Command::new(root().join("scripts/install-capi"));
        if profile.ends_with("debug") {
            script.arg("--debug");
        }
        script.arg(&prefix).env("CARGO_TARGET_DIR", profile.parent().unwrap());
        run(&mut script);
        prefix
    })
}

/// What pkg-config says of the installed library.
fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    words(command.args(arguments).arg("bothends"))
}

fn compile(source: &str, name: &str, flags: &[String]) -> PathBuf {
    let program = tmp().join(name);
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    cc.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source));
    run(cc.args(flags).arg("-lm").arg("-o").arg(&program));
    program
}

/// A program that uses the shared library.
fn shared(source: &str, name: &str) -> PathBuf {
    compile(source, name, &pkg_config(&["--cflags", "--libs"]))
}

/// The program, where it finds the library.
fn started(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", prefix().join("lib"));
    command
}

/// The program in valgrind, which fails for a leak or a wrong access. The kernels for AVX-512
/// stay away by themselves: valgrind's processor does not have it.
fn watched(program: &Path) -> Command {
    let mut command = started(Path::new("valgrind"));
    let suppressions = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/valgrind.supp");
    command.args(["--quiet", "--leak-check=full", "--error-exitcode=9"]);
    command.arg(format!("--suppressions={suppressions}")).arg(program);
    command
}

fn images() -> &'static Path {
    static IMAGES: OnceLock<PathBuf> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let folder = tmp().join("images");
        let config = GenerateConfig { n_images: 20, n_classes: 4, seed: 3 };
        generate(&folder, &config, &mut |_, _| {}).unwrap();
        folder
    })
}

/// Trains until the end, with a stop after each of `stops` batches; the last checkpoint.
fn trained(start: impl Fn() -> Command, name: &str, stops: &[u32]) -> String {
    let checkpoint = tmp().join(name);
    // Another run of the tests may have left one.
    let _ = fs::remove_file(&checkpoint);
    for stop in stops {
        run(start().arg(images()).arg(&checkpoint).arg(stop.to_string()));
    }
    let output = run(start().arg(images()).arg(&checkpoint));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("epoch 1: loss "), "{said}");
    fs::read_to_string(checkpoint).unwrap()
}

#[test]
fn a_training_loop_stops_and_goes_on_without_a_leak() {
    if !has(&["cc", "pkg-config"]) {
        return;
    }
    let program = shared("examples/train.c", "train");
    // Three batches an epoch: stops in the middle, at an epoch's end, and again.
    let straight = trained(|| started(&program), "straight", &[]);
    for at in ["\"epoch\":2,", "\"position\":0,"] {
        assert!(straight.contains(at), "{straight}");
    }
    let stopped = trained(|| started(&program), "stopped", &[2, 1, 1]);
    assert_eq!(straight, stopped);
    if has(&["valgrind"]) {
        let watched = trained(|| watched(&program), "watched", &[2]);
        assert_eq!(straight, watched);
    }
}

#[test]
fn nothing_that_c_may_do_crashes() {
    if !has(&["cc", "pkg-config"]) {
        return;
    }
    let program = shared("tests/doors.c", "doors");
    for what in ["null", "order", "fork", "cancel"] {
        run(started(&program).arg(what).arg(images()));
    }
    let shards = root().join("tests/fixtures/shards/fields-mds");
    run(started(&program).arg("fields").arg(&shards));
    if has(&["valgrind"]) {
        for what in ["null", "order"] {
            run(watched(&program).arg(what).arg(images()));
        }
        run(watched(&program).arg("fields").arg(&shards));
    }
}

/// Runs over a stub of NVIDIA's library; not yet run on a GPU.
#[test]
fn a_batch_may_end_on_a_gpu() {
    if !has(&["cc", "pkg-config"]) {
        return;
    }
    let program = shared("tests/doors.c", "doors-gpu");
    let folder = tmp().join("stub");
    fs::create_dir_all(&folder).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-pthread", "-o"]).arg(folder.join("libcuda.so"));
    run(cc.arg(root().join("crates/gpu/tests/stub/cuda.c")).arg("-ldl"));
    let library = prefix().join("lib");
    let path = format!("{}:{}", folder.display(), library.display());
    run(started(&program).env("LD_LIBRARY_PATH", path).arg("gpu").arg(images()));
}

#[test]
fn the_static_library_is_enough() {
    if !has(&["cc", "pkg-config"]) {
        return;
    }
    let mut flags = pkg_config(&["--cflags"]);
    flags.push(prefix().join("lib/libbothends.a").to_str().unwrap().to_owned());
    let native = pkg_config(&["--libs", "--static"]);
    flags.extend(native.into_iter().filter(|flag| flag != "-lbothends"));
    let program = compile("tests/doors.c", "doors-static", &flags);
    run(Command::new(program).arg("order").arg(images()));
}

/// The commands of a page that compile, each on one line, and its programs in C++.
fn compiling(page: &str) -> (Vec<String>, Vec<String>) {
    let page = fs::read_to_string(root().join(page)).unwrap().replace("\\\n", "");
    let commands =
        page.lines().filter(|line| line.starts_with("cc ") || line.starts_with("c++ "));
    let programs =
        page.split("```cpp\n").skip(1).filter_map(|rest| rest.split("```").next());
    (commands.map(str::to_owned).collect(), programs.map(str::to_owned).collect())
}

#[test]
fn what_the_pages_compile_starts_without_further_settings() {
    if !has(&["cc", "c++", "pkg-config"]) {
        return;
    }
    let folder = tmp().join("pages");
    fs::create_dir_all(&folder).unwrap();
    for (page, n_commands) in [("README.md", 1), ("docs/c.md", 3)] {
        let (commands, programs) = compiling(page);
        assert_eq!(commands.len(), n_commands, "{page}");
        if let [program] = &programs[..] {
            fs::write(folder.join("loop.cpp"), program).unwrap();
        }
        for command in commands {
            let program = folder.join(command.rsplit(' ').next().unwrap());
            let command =
                command.replace("crates/", &format!("{}/crates/", root().display()));
            let mut shell = Command::new("sh");
            shell.args(["-e", "-c", &command]).current_dir(&folder);
            run(shell.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
            let checkpoint = program.with_extension("checkpoint");
            let _ = fs::remove_file(&checkpoint);
            let said =
                run(Command::new(&program).arg(images()).arg(&checkpoint).arg("1"));
            let is_loop = program.ends_with("loop");
            let said = String::from_utf8(said.stdout).unwrap();
            assert_eq!(
                said,
                if is_loop { "8 samples\n8 samples\n" } else { "" },
                "{command}"
            );
        }
    }
}

#[test]
fn a_cpp_program_can_use_the_header() {
    if !has(&["c++", "cc"]) {
        return;
    }
    let header = prefix().join("include/bothends.h");
    let flags =
        ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"];
    run(Command::new("c++").args(flags).arg(header));
}

#[test]
fn the_shared_library_exports_the_headers_functions_each_with_its_version() {
    if !has(&["cc", "nm", "readelf"]) {
        return;
    }
    let library = prefix().join("lib/libbothends.so");
    let said = words(Command::new("readelf").args(["-d", "-W"]).arg(&library)).join(" ");
    assert!(said.contains("soname: [libbothends.so.0]"), "{said}");
    let sections = words(Command::new("readelf").args(["-S", "-W"]).arg(&library));
    let has_symbols = sections.iter().any(|section| section == ".symtab");
    assert_eq!(has_symbols, profile().ends_with("debug"), "what ships is stripped");
    let mut nm = Command::new("nm");
    nm.args(["-D", "--defined-only", "--format=just-symbols", "--with-symbol-versions"]);
    let exported: BTreeSet<_> = words(nm.arg(&library)).into_iter().collect();
    let header = fs::read_to_string(prefix().join("include/bothends.h")).unwrap();
    let declared = header.lines().filter(|line| !line.starts_with("//"));
    let declared = declared.filter_map(|line| {
        let (name, _) = line.split_once('(')?;
        let name = name.rsplit([' ', '*']).next()?;
        name.starts_with("be_").then(|| format!("{name}@@BOTHENDS_0.1"))
    });
    let mut declared: BTreeSet<_> = declared.collect();
    assert!(declared.len() > 25, "{declared:?}");
    declared.insert("BOTHENDS_0.1".to_owned());
    assert_eq!(exported, declared);
}
