//! What `bothends-agent calibrate` makes is a preset of firmware-sim.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use bothends_firmware_sim::media::MediaConfig;
use bothends_firmware_sim::preset;

#[test]
fn a_measured_machine_is_a_preset() {
    let folder = tempfile::tempdir().unwrap();
    let jpeg =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/ops/420-48x64.jpg");
    std::fs::copy(jpeg, folder.path().join("a.jpg")).unwrap();
    std::fs::write(folder.path().join("b"), vec![7; 1 << 20]).unwrap();
    let made = tempfile::tempdir().unwrap();
    let file = made.path().join("my-machine.json");
    let arguments = ["bothends-agent", "calibrate", "--data-root"].map(Into::into);
    let places = [folder.path().into(), "--preset".into(), file.clone().into_os_string()];
    let status = bothends_agent::program::main(arguments.into_iter().chain(places));
    assert_eq!(status, 0);
    let device = preset::load(file.to_str().unwrap()).unwrap();
    assert_eq!(device.name, "my-machine");
    assert!(matches!(device.media, MediaConfig::Flat(_)));
    assert!(device.work.unwrap().coded_bytes_per_s > 1000);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("measured on 20") && text.contains("uncalibrated"), "{text}");
}
