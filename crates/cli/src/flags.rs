//! What the command line calls the settings that errors name: the flags of the command that was given. A
//! flag that it does not have is no advice.

use std::sync::OnceLock;

use bothends_core::setting::Setting;
use bothends_runtime::one_line_with;

/// The flags of the command that was given, without their dashes.
static GIVEN: OnceLock<Vec<String>> = OnceLock::new();

/// Takes the flags of the command that was given, once per process. Until then, all commands' flags are
/// advised.
pub(crate) fn take_command(command: &clap::Command, matches: &clap::ArgMatches) {
    GIVEN.get_or_init(|| of_command(command, matches));
}

fn of_command(command: &clap::Command, matches: &clap::ArgMatches) -> Vec<String> {
    let within = matches.subcommand();
    let within = within.and_then(|(name, of)| Some((command.find_subcommand(name)?, of)));
    match within {
        Some((command, matches)) => of_command(command, matches),
        None => command.get_arguments().filter_map(of_argument).collect(),
    }
}

fn of_argument(argument: &clap::Arg) -> Option<String> {
    argument.get_long().map(str::to_owned)
}

/// An error that ends a command, with its causes, in one line.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    one_line_with(error.as_ref(), flag)
}

/// A setting's flag; empty where the command that was given does not have it.
pub(crate) fn flag(setting: Setting) -> &'static str {
    flag_of(setting, GIVEN.get().map(Vec::as_slice))
}

fn flag_of(setting: Setting, given: Option<&[String]>) -> &'static str {
    let flag = any_flag(setting);
    let is_of = |given: &[String]| {
        given.iter().any(|it| flag.strip_prefix("--") == Some(it.as_str()))
    };
    match (setting, given.is_none_or(is_of)) {
        (Setting::Data, true) => "the path given with --data",
        (Setting::Data, false) => "the path",
        (_, true) => flag,
        (_, false) => "",
    }
}

/// A setting's flag, of whichever command has it.
fn any_flag(setting: Setting) -> &'static str {
    match setting {
        Setting::Data => "--data",
        Setting::BatchSize => "--batch-size",
        Setting::Repeat => "--repeat",
        Setting::Last => "--last",
        Setting::Seed => "--seed",
        Setting::Strategy => "--strategy",
        Setting::Rank => "--rank",
        Setting::World => "--world",
        Setting::OnBad => "--on-bad",
        Setting::Workers => "--workers",
        Setting::Memory => "--memory",
        Setting::Devices => "--csd",
        Setting::Insecure => "--insecure",
        Setting::TlsCa => "--tls-ca",
        Setting::TlsCert => "--tls-cert",
        Setting::TlsKey => "--tls-key",
        Setting::MixLabels => "--mix-labels",
        Setting::CacheSize => "--cache-size",
        Setting::FetchReorder => "--fetch-reorder",
        // Batches are delivered in host memory.
        Setting::Deliver => "",
        Setting::SaveState => "--checkpoint",
        Setting::LoadState => "--resume",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of the command in these words.
    fn given(words: &[&str]) -> Vec<String> {
        use clap::CommandFactory as _;
        let mut command = crate::args::Args::command();
        let words = std::iter::once(&"bothends").chain(words);
        let matches = command.try_get_matches_from_mut(words).unwrap();
        of_command(&command, &matches)
    }

    #[test]
    fn a_command_is_advised_to_use_its_own_flags() {
        let flags = |words: &[&str]| {
            let given = given(words);
            let settings = [Setting::BatchSize, Setting::Repeat, Setting::OnBad];
            settings.map(|setting| flag_of(setting, Some(&given)))
        };
        let run = ["run", "--data", "d", "--recipe", "raw"];
        assert_eq!(flags(&run), ["--batch-size", "--repeat", "--on-bad"]);
        assert_eq!(flags(&["doctor"]), ["--batch-size", "", ""]);
        assert_eq!(flags(&["bench", "au", "--data", "d"]), ["--batch-size", "", ""]);
        assert_eq!(flags(&["demo"]), ["", "", ""]);
        let data = |words: &[&str]| flag_of(Setting::Data, Some(&given(words)));
        assert_eq!(data(&["doctor"]), "the path given with --data");
        assert_eq!(data(&["unpack", "a", "b"]), "the path");
        let insecure = |words: &[&str]| flag_of(Setting::Insecure, Some(&given(words)));
        assert_eq!(insecure(&run), "--insecure");
        assert_eq!(insecure(&["demo"]), "");
    }

    #[test]
    fn an_error_of_a_connection_names_the_flags() {
        let said = |address: &str| {
            let address = address.parse().unwrap();
            let Err(error) = bothends_csd::connect(&address, &Default::default()) else {
                panic!("{address} needs more")
            };
            one_line(&error.into())
        };
        let plain = said("tcp://192.0.2.1:7070");
        assert!(plain.ends_with("or `--insecure` on both"), "{plain}");
        let sealed = said("tls://192.0.2.1:7070");
        assert!(sealed.contains("`--tls-ca`, `--tls-cert` and `--tls-key`"), "{sealed}");
    }
}
