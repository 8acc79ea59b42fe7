//! The executable of a package is the program by whose name it is called.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::symlink;
use std::process::Command;

#[test]
fn one_executable_is_the_program_that_it_is_called_as() {
    let folder = tempfile::tempdir().unwrap();
    for (name, program) in [
        ("bothends-agent", "bothends-agent"),
        ("firmware-sim", "firmware-sim"),
        ("bothends", "bothends"),
        ("bothends-0.1", "bothends"),
    ] {
        let path = folder.path().join(name);
        symlink(env!("CARGO_BIN_EXE_bothends"), &path).unwrap();
        let output = Command::new(&path).arg("--version").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said, format!("{program} {}\n", env!("CARGO_PKG_VERSION")), "{name}");
    }
}
