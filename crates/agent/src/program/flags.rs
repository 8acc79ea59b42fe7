//! What this program calls the settings that errors of connections name: its flags.

use bothends_core::setting::Setting;

/// A setting's flag; empty where there is none, or where it is of the host.
pub(super) fn flag(setting: Setting) -> &'static str {
    match setting {
        Setting::Insecure => "--insecure",
        Setting::TlsCa => "--tls-ca",
        Setting::TlsCert => "--tls-cert",
        Setting::TlsKey => "--tls-key",
        Setting::Data
        | Setting::BatchSize
        | Setting::Repeat
        | Setting::Last
        | Setting::Seed
        | Setting::Strategy
        | Setting::Rank
        | Setting::World
        | Setting::OnBad
        | Setting::Workers
        | Setting::Memory
        | Setting::Devices
        | Setting::MixLabels
        | Setting::CacheSize
        | Setting::FetchReorder
        | Setting::Deliver
        | Setting::SaveState
        | Setting::LoadState => "",
    }
}

#[cfg(test)]
mod tests {
    use bothends_csd::listen::Listener;
    use bothends_csd::{Security, one_line_with};
    use clap::CommandFactory as _;

    use super::super::Line;
    use super::*;

    #[test]
    fn an_error_of_a_connection_names_the_flags() {
        let said = |address: &str| {
            let address = address.parse().unwrap();
            let error = Listener::bind(&address, &Security::default()).unwrap_err();
            one_line_with(anyhow::Error::from(error).as_ref(), flag)
        };
        let plain = said("tcp://0.0.0.0:0");
        assert!(plain.ends_with("or `--insecure` on both"), "{plain}");
        let sealed = said("tls://127.0.0.1:0");
        assert!(sealed.ends_with("`--tls-ca`, `--tls-cert` and `--tls-key`"), "{sealed}");
    }

    #[test]
    fn there_are_such_flags() {
        let line = Line::command();
        let has = |flag: &str| {
            let mut all = line.get_arguments().filter_map(clap::Arg::get_long);
            all.any(|long| flag.strip_prefix("--") == Some(long))
        };
        for setting in
            [Setting::Insecure, Setting::TlsCa, Setting::TlsCert, Setting::TlsKey]
        {
            assert!(has(flag(setting)), "{setting:?}");
        }
    }
}
