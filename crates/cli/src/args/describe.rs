//! The flags of what describes the programs to shells and to `man`.

use std::path::PathBuf;

use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell that loads them, as in `source <(bothends completions bash)`
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// The folder in which man/, bash-completion/, zsh/ and fish/ are created: a `share` folder
    #[arg(value_name = "DIR")]
    pub(crate) share: PathBuf,
}
