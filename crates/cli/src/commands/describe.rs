//! `bothends completions` and `bothends man`: what shells and `man` are told about the programs.
//!
//! Both are generated from the flags themselves, so they cannot disagree with them. Packages ship
//! what `man` writes (`scripts/build-programs`); `completions` is for one's own shell.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;

use crate::args::describe::{CompletionsArgs, ManArgs};
use crate::failed::Failed;
use crate::say;

/// Where each shell looks for completions, below a `share` folder, and what it calls the file of
/// `bothends`.
const SHELLS: [(Shell, &str, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "", ""),
    (Shell::Zsh, "zsh/site-functions", "_", ""),
    (Shell::Fish, "fish/vendor_completions.d", "", ".fish"),
];

/// Prints one shell's completions for all `programs`.
pub(crate) fn completions(args: &CompletionsArgs, programs: &[Command]) {
    for program in programs {
        say::raw(&script(args.shell, program));
    }
}

/// Writes man pages and completions of all `programs` into the folders that `share` has for them.
pub(crate) fn man(args: &ManArgs, programs: &[Command]) -> Result<(), Failed> {
    let pages = args.share.join("man/man1");
    make(&pages)?;
    for program in programs {
        clap_mangen::generate_to(program.clone(), &pages)
            .with_context(|| format!("cannot write man pages to {}", pages.display()))?;
        for (shell, folder, before, after) in SHELLS {
            let folder = args.share.join(folder);
            make(&folder)?;
            let file = folder.join(format!("{before}{}{after}", program.get_name()));
            fs::write(&file, script(shell, program))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(())
}

fn script(shell: Shell, program: &Command) -> Vec<u8> {
    let mut script = Vec::new();
    let name = program.get_name().to_owned();
    clap_complete::generate(shell, &mut program.clone(), name, &mut script);
    script
}

fn make(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make {}", folder.display()))
}
