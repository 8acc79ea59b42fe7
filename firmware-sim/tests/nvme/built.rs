//! The programs of `firmware-sim/programs`, built for the tests.
#![allow(clippy::print_stderr, reason = "a skip is said")]

use std::path::Path;
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";

/// The module of one of the programs; without the Rust target for it there is none, which is said.
pub(crate) fn module_of(name: &str) -> Option<Vec<u8>> {
    let listed = Command::new("rustup").args(["target", "list", "--installed"]).output();
    let installed = listed.map(|said| String::from_utf8_lossy(&said.stdout).into_owned());
    if !installed.is_ok_and(|all| all.lines().any(|line| line == TARGET)) {
        eprintln!(
            "skipped: the program `{name}`: no {TARGET}; rustup target add {TARGET}"
        );
        return None;
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Next to what this test is in: `target/debug/deps`.
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(3).unwrap().join("programs");
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--release",
            "--locked",
            "--target",
            TARGET,
            "-p",
            name,
        ])
        .arg("--manifest-path")
        .arg(own.join("programs/Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        .env_remove("RUSTFLAGS")
        .status();
    assert!(status.unwrap().success(), "the program {name} is not built");
    let module = folder.join(TARGET).join("release").join(format!("{name}.wasm"));
    Some(std::fs::read(module).unwrap())
}
