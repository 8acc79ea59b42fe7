//! What the programs tell shells and `man` about themselves: every one of them, every command.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Command, Stdio};

use bothends_tests::programs::program;

const PROGRAMS: [&str; 3] = ["bothends", "bothends-agent", "firmware-sim"];

fn bothends(arguments: &[&str]) -> String {
    let output =
        Command::new(program("bothends").unwrap()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that `bothends --help` lists.
fn listed() -> Vec<String> {
    let help = bothends(&["--help"]);
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let lines = lines.filter_map(|line| line.strip_prefix("  "));
    let words = lines.filter(|line| !line.starts_with(' '));
    let names =
        words.filter_map(|line| line.split_whitespace().next().map(str::to_owned));
    names.filter(|name| name != "help").collect()
}

#[test]
fn every_program_and_command_has_its_page_and_completions() {
    let folder = tempfile::tempdir().unwrap();
    bothends(&["man", folder.path().to_str().unwrap()]);
    let is_there = |name: String| {
        let file = folder.path().join(&name);
        assert!(file.metadata().is_ok_and(|file| file.len() > 100), "no {name}");
    };
    for name in PROGRAMS {
        is_there(format!("man/man1/{name}.1"));
        is_there(format!("bash-completion/completions/{name}"));
        is_there(format!("zsh/site-functions/_{name}"));
        is_there(format!("fish/vendor_completions.d/{name}.fish"));
    }
    let commands = listed();
    assert!(commands.iter().any(|name| name == "completions"), "{commands:?}");
    for command in commands {
        is_there(format!("man/man1/bothends-{command}.1"));
    }
    assert!(!folder.path().join("man/man1/bothends-man.1").exists(), "it is hidden");
    let page = std::fs::read_to_string(folder.path().join("man/man1/bothends-run.1"));
    assert!(page.unwrap().contains("batch\\-size"));
}

/// What bash offers for the last of `words`.
fn offered(words: &[&str]) -> Vec<String> {
    let script = r#"
        source <(bothends completions bash)
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        "_${1//-/__}" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let folder = program("bothends").unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.parent().unwrap().display());
    let mut bash = Command::new("bash");
    bash.args(["-uc", script, "bash"]).args(words).env("PATH", path).stdin(Stdio::null());
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_and_values_of_all_three() {
    if !Path::new("/bin/bash").exists() {
        eprintln!("skipped: completions in bash: there is no bash");
        return;
    }
    assert_eq!(offered(&["bothends", "sim"]), ["simulate"]);
    assert_eq!(offered(&["bothends", "run", "--batch-s"]), ["--batch-size"]);
    assert_eq!(offered(&["bothends", "completions", "zs"]), ["zsh"]);
    assert_eq!(offered(&["bothends-agent", "--data-r"]), ["--data-root"]);
    assert_eq!(offered(&["firmware-sim", "--time", "pa"]), ["paced"]);
}
