//! Every example runs on generated images and says what it is there to say.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The build folder of this profile, with the examples and the emulated device in it.
fn built() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let exe = std::env::current_exe().unwrap();
        let folder = exe.ancestors().nth(2).unwrap().to_owned();
        // Said by whoever has built everything; some packages alone take other features of
        // their dependencies, and so minutes.
        if std::env::var_os("BOTHENDS_BUILT").is_some_and(|built| *built == *folder) {
            return folder;
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--offline"]);
        cargo.args(["-p", "bothends", "--bins", "--examples"]);
        cargo.arg("--target-dir").arg(folder.parent().unwrap());
        cargo.args(folder.ends_with("release").then_some("--release"));
        assert!(cargo.status().unwrap().success(), "{cargo:?}");
        folder
    })
}

fn run(name: &str) -> String {
    let output = Command::new(built().join("examples").join(name)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_example_runs() {
    let course = [
        ("01_read_a_folder", "48 samples of 4 classes, each 3 x 224 x 224 floats"),
        ("02_resume", "the same 48 samples in the same order as without a stop"),
        ("03_second_prong", "one stream, with and without the device"),
        ("04_own_loop_many_consumers", "together: every sample once"),
        ("05_a_recipe_of_your_own", "batch 2: the first label is"),
    ];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let files = std::fs::read_dir(folder).unwrap();
    let n_files = files.filter(|f| f.as_ref().unwrap().path().is_file()).count();
    assert_eq!(n_files, course.len(), "an example is missing here");
    for (name, line) in course {
        let said = run(name);
        assert!(said.contains(line), "{name} does not say `{line}`:\n{said}");
    }
}
