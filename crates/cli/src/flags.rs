//! What the command line calls the settings that errors name: its flags.

use std::error::Error;

use bothends_core::setting::Setting;
use bothends_csd::CsdError;
use bothends_runtime::one_line_with;

/// What the errors of connections call their settings, and the flags that those are here.
const OF_CONNECTIONS: [(&str, &str); 2] = [
    ("`insecure`", "`--insecure`"),
    ("`ca`, `cert` and `key`", "`--tls-ca`, `--tls-cert` and `--tls-key`"),
];

/// An error that ends a command, with its causes, in one line.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let line = one_line_with(error.as_ref(), flag);
    let is_of_connection = |cause: &(dyn Error + 'static)| cause.is::<CsdError>();
    match error.chain().any(is_of_connection) {
        true => OF_CONNECTIONS.iter().fold(line, |line, (of, is)| line.replace(of, is)),
        false => line,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
