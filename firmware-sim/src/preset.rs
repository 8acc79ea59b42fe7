//! The built-in presets (`configs/devices/*.json`), and presets in files.

use std::io::ErrorKind;

use bothends_core::nearest::did_you_mean;

use crate::config::{Bound, DeviceConfig, PresetError};

/// Name and text of every preset.
pub const PRESETS: [(&str, &str); 7] = [
    ("newport", include_str!("../configs/devices/newport.json")),
    ("smartssd", include_str!("../configs/devices/smartssd.json")),
    ("dpu-bf2", include_str!("../configs/devices/dpu-bf2.json")),
    ("storage-server", include_str!("../configs/devices/storage-server.json")),
    ("970-pro", include_str!("../configs/devices/970-pro.json")),
    ("zn540", include_str!("../configs/devices/zn540.json")),
    ("ideal", include_str!("../configs/devices/ideal.json")),
];

/// The preset of that name, else the preset in the file of that name. Reads the file.
///
/// # Errors
/// [`PresetError::Unknown`] with all names, or what is wrong with the preset.
pub fn load(name: &str) -> Result<DeviceConfig, PresetError> {
    load_at(name, Bound::Middle)
}

/// The same at one end of what its constants may be.
///
/// # Errors
/// As [`load`].
pub fn load_at(name: &str, bound: Bound) -> Result<DeviceConfig, PresetError> {
    if let Some((_, json)) = PRESETS.iter().find(|(known, _)| *known == name) {
        return DeviceConfig::from_json_at(name, json, bound);
    }
    match std::fs::read_to_string(name) {
        Ok(json) => DeviceConfig::from_json_at(name, &json, bound),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let presets = PRESETS.map(|(known, _)| known);
            let meant = did_you_mean(name, presets);
            let (name, presets) = (name.to_owned(), presets.join(", "));
            Err(PresetError::Unknown { name, presets, meant })
        }
        Err(error) => {
            Err(PresetError::Unreadable { path: name.to_owned(), why: error.to_string() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_complete_and_named_as_it_is_called() {
        for (name, _) in PRESETS {
            assert_eq!(load(name).unwrap().name, name);
        }
    }

    #[test]
    fn every_file_of_the_folder_is_a_preset() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/devices");
        let mut n_files = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            load(entry.unwrap().path().to_str().unwrap()).unwrap();
            n_files += 1;
        }
        assert_eq!(
            n_files,
            PRESETS.len(),
            "a preset that is not in the list is not found"
        );
    }

    #[test]
    fn an_unknown_name_lists_the_presets() {
        let error = load("newprot").unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no preset or file `newprot`; \
             the presets are newport, smartssd, dpu-bf2, storage-server, 970-pro, \
             zn540, ideal; \
             did you mean `newport`?"
        );
    }

    #[test]
    fn an_unknown_or_missing_key_is_named() {
        let newport = PRESETS[0].1;
        let spoilt = [
            (newport.replace("\"latency\"", "\"latencey\""), "latencey"),
            (newport.replace("\"page_size\"", "\"page_sizes\""), "page_sizes"),
            (newport.replace("\"idle\"", "\"idel\""), "idel"),
            (newport.replace("\"nand\"", "\"nandd\""), "nandd"),
            (newport[..newport.len() / 2].to_owned(), "EOF"),
        ];
        for (json, expected) in spoilt {
            let error =
                DeviceConfig::from_json("newport", &json).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.starts_with("preset newport: "), "{error}");
        }
    }

    #[test]
    fn a_slowdown_that_speeds_up_and_a_part_of_a_core_are_refused() {
        let newport = PRESETS[0].1;
        let json = newport.replace(
            "\"power\": {",
            r#""thermal": {
                "cooled": { "value": 8, "unit": "W", "source": "x" },
                "reservoir": { "value": 100, "unit": "J", "source": "x" },
                "slowdown": { "value": 2, "unit": "x", "source": "x" }
            }, "power": {"#,
        );
        let with = |from: &str, to: &str| {
            let json = json.replacen(from, to, 1);
            DeviceConfig::from_json("own", &json).map_err(|error| error.to_string())
        };
        assert_eq!(with("", "").unwrap().thermal.unwrap().slowdown_milli, 2000);
        assert_eq!(
            with("\"value\": 2, \"unit\": \"x\"", "\"value\": 0.5, \"unit\": \"x\"")
                .unwrap_err(),
            "preset own: `thermal.slowdown` is 0.5 x; it must be from 1 to 1000 x"
        );
        assert_eq!(
            with("\"cores\": { \"value\": 4,", "\"cores\": { \"value\": 1.4,")
                .unwrap_err(),
            "preset own: `compute.cores` is 1.4; it must be a whole number from 1 to 4096"
        );
    }

    #[test]
    fn constants_that_do_not_fit_together_are_told_in_a_line() {
        let newport = PRESETS[0].1;
        let with = |key: &str, value: &str| {
            let begin = newport.find(&format!("\"{key}\": {{")).unwrap();
            let end = begin + newport[begin..].find(", \"source\"").unwrap();
            format!("{}\"{key}\": {{ {value}{}", &newport[..begin], &newport[end..])
        };
        let size = |value: u32| format!("\"value\": {value}, \"unit\": \"B\"");
        let count = |value: u32| format!("\"value\": {value}, \"unit\": \"1\"");
        for (json, expected) in [
            (with("channels", &count(4096)), "make 8192 planes; at most 4096"),
            (with("transfer_unit", &size(100)), "`media.transfer_unit` is 100 B"),
            (with("page_size", &size(5000)), "flash that is written has pages of whole"),
            (with("program_unit", &size(5000)), "`writes.program_unit` is 5000 B"),
            (with("program_unit", &size(3 << 15)), "`writes.program_unit` is 98304 B"),
            (with("block_pages", &count(4096)), "make a block of 134217728 B"),
            (with("buffer", &size(4096)), "`writes.buffer` is 4096 B; it must hold"),
            (with("over_provisioning", &size(7)), "`writes.over_provisioning` is in `B`"),
        ] {
            let error = DeviceConfig::from_json("own", &json).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
