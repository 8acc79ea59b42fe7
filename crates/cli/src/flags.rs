//! What the command line calls the settings that errors name: its flags.

use bothends_core::setting::Setting;
use bothends_runtime::one_line_with;

/// An error that ends a command, with its causes, in one line.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    one_line_with(error.as_ref(), flag)
}

/// A setting's flag.
pub(crate) fn flag(setting: Setting) -> &'static str {
    match setting {
        Setting::Data => "the path given with --data",
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
        Setting::SaveState => "--checkpoint",
        Setting::LoadState => "--resume",
    }
}
