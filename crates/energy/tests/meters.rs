//! Every meter over a faked source, through the whole conformance suite, and its messages when
//! something is wrong.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "tests; a skip must be seen"
)]

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bothends_energy::conformance::{self, Fake, Spent, State};
use bothends_energy::{
    CommandMeter, Count, EnergyError, Event, Hwmon, Meter, NvmlMeter, Part, Perf, Rapl,
    Tree,
};
use tempfile::TempDir;

/// Reads as an ordinary user would: the permission bits count even for root.
fn as_a_user(path: &Path) -> io::Result<String> {
    if fs::metadata(path)?.permissions().mode() & 0o444 == 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    fs::read_to_string(path)
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Files with what a meter reads.
struct Files {
    folder: TempDir,
    /// Those with the figures.
    counters: Vec<PathBuf>,
}

impl Files {
    fn new(files: &[(&str, &str)], counters: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            write(&folder.path().join(path), text);
        }
        let counters = counters.iter().map(|path| folder.path().join(path)).collect();
        Self { folder, counters }
    }

    fn tree(&self) -> Tree {
        Tree::at(self.folder.path()).read_by(as_a_user)
    }

    fn add(&self, amount: u64, range: u64) {
        for path in &self.counters {
            let now: u64 = fs::read_to_string(path).unwrap().trim().parse().unwrap();
            fs::write(path, format!("{}\n", (now + amount) % range)).unwrap();
        }
    }

    fn be(&self, state: State) {
        for path in &self.counters {
            let kept = path.with_extension("kept");
            let mode = if state == State::Denied { 0o200 } else { 0o644 };
            match state {
                State::Well => {
                    if kept.exists() {
                        fs::rename(&kept, path).unwrap();
                    }
                }
                State::Denied => {}
                State::Vanished => fs::rename(path, &kept).unwrap(),
                State::Garbled => {
                    fs::copy(path, &kept).unwrap();
                    fs::write(path, "<no data>\n").unwrap();
                }
            }
            if path.exists() {
                fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    }
}

const RANGE_UJ: u64 = 262_143_328_850;

struct FakeRapl(Files);

impl FakeRapl {
    fn new() -> Self {
        let zone = |path: &str, name: &'static str, at: &'static str| {
            let folder = format!("sys/class/powercap/{path}");
            [
                (format!("{folder}/name"), name.to_owned()),
                (format!("{folder}/energy_uj"), at.to_owned()),
                (format!("{folder}/max_energy_range_uj"), RANGE_UJ.to_string()),
            ]
        };
        let mut files = Vec::from([
            ("sys/class/powercap/intel-rapl/enabled".to_owned(), "1\n".to_owned()),
            ("sys/class/powercap/dtpm/name".to_owned(), "dtpm\n".to_owned()),
        ]);
        files.extend(zone("intel-rapl-mmio:0", "package-0\n", "5\n"));
        files.extend(zone("intel-rapl:0", "package-0\n", "262143328000\n"));
        files.extend(zone("intel-rapl:0:0", "core\n", "17\n"));
        files.extend(zone("intel-rapl:0:1", "dram\n", "0\n"));
        files.extend(zone("intel-rapl:1", "psys\n", "99\n"));
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let counters = ["0", "0:0", "0:1", "1"]
            .map(|zone| format!("sys/class/powercap/intel-rapl:{zone}/energy_uj"));
        Self(Files::new(&files, &counters.each_ref().map(String::as_str)))
    }
}

impl Fake for FakeRapl {
    fn open(&self) -> Result<Box<dyn Meter>, EnergyError> {
        Ok(Box::new(Rapl::open(&self.0.tree())?))
    }

    fn spend(&mut self, energy_uj: u64) -> Spent {
        self.0.add(energy_uj, RANGE_UJ);
        Spent::Exactly
    }

    fn range_uj(&self) -> Option<u64> {
        Some(RANGE_UJ)
    }

    fn be(&mut self, state: State) {
        self.0.be(state);
    }
}

#[test]
fn rapl_keeps_the_contract() {
    conformance::all(&|| Box::new(FakeRapl::new()));
}

#[test]
fn rapl_knows_what_is_within_what() {
    let meter = FakeRapl::new().open().unwrap();
    let domains: Vec<(&str, Part)> = meter
        .domains()
        .iter()
        .map(|domain| (domain.name.as_str(), domain.part))
        .collect();
    let expected = [
        ("package-0", Part::Processors),
        ("package-0/core", Part::Other),
        ("package-0/dram", Part::Memory),
        ("psys", Part::Other),
    ];
    assert_eq!(domains, expected);
    assert_eq!(meter.domains()[2].source, "measured(rapl:package-0/dram)");
}

#[test]
fn rapl_that_is_denied_says_how_to_be_allowed() {
    let mut fake = FakeRapl::new();
    fake.be(State::Denied);
    let error = fake.open().unwrap_err();
    assert!(matches!(error, EnergyError::Denied { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("intel-rapl:0/energy_uj is denied to this user"), "{said}");
    assert!(said.contains("sudo chmod a+r"), "{said}");
}

#[test]
fn rapl_beyond_its_own_range_is_no_figure() {
    let fake = FakeRapl::new();
    let mut meter = fake.open().unwrap();
    for path in &fake.0.counters {
        fs::write(path, "18446744073709551615").unwrap();
    }
    let said = meter.read().unwrap_err().to_string();
    assert!(said.contains("which is not within the counter's range"), "{said}");
}

/// Counts what a file says, as the kernel would.
#[derive(Debug)]
struct FileCount(PathBuf);

impl Count for FileCount {
    fn count(&mut self) -> io::Result<u64> {
        as_a_user(&self.0)?.trim().parse().map_err(io::Error::other)
    }
}

struct FakePerf(Files);

/// 2^-32 J, the unit of most processors.
const SCALE: &str = "2.3283064365386962890625e-10";

impl FakePerf {
    fn new() -> Self {
        let pmu = "sys/bus/event_source/devices/power";
        let files = [
            ("type", "12\n"),
            ("cpumask", "0,36\n"),
            ("events/energy-pkg", "event=0x02\n"),
            ("events/energy-pkg.scale", SCALE),
            ("events/energy-pkg.unit", "Joules\n"),
            ("events/energy-ram", "event=0x03\n"),
            ("events/energy-ram.scale", SCALE),
        ]
        .map(|(name, text)| (format!("{pmu}/{name}"), text));
        let mut files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let counts = ["count/2-0", "count/2-36", "count/3-0", "count/3-36"];
        files.extend(counts.map(|path| (path, "0\n")));
        Self(Files::new(&files, &counts))
    }
}

impl Fake for FakePerf {
    fn open(&self) -> Result<Box<dyn Meter>, EnergyError> {
        let folder = self.0.folder.path().join("count");
        let open = |event: Event| -> io::Result<Box<dyn Count>> {
            assert_eq!(event.pmu, 12);
            let mut count =
                FileCount(folder.join(format!("{}-{}", event.config, event.cpu)));
            count.count()?;
            Ok(Box::new(count))
        };
        Ok(Box::new(Perf::open_by(&self.0.tree(), &open)?))
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "some joules"
    )]
    fn spend(&mut self, energy_uj: u64) -> Spent {
        let counts = energy_uj as f64 / 1e6 / SCALE.parse::<f64>().unwrap();
        self.0.add(counts as u64, u64::MAX);
        Spent::Exactly
    }

    fn range_uj(&self) -> Option<u64> {
        None
    }

    fn be(&mut self, state: State) {
        self.0.be(state);
    }
}

#[test]
fn perf_keeps_the_contract() {
    conformance::all(&|| Box::new(FakePerf::new()));
    let meter = FakePerf::new().open().unwrap();
    let sources: Vec<&str> =
        meter.domains().iter().map(|domain| domain.source.as_str()).collect();
    let expected = [
        "measured(perf:energy-pkg/cpu0)",
        "measured(perf:energy-pkg/cpu36)",
        "measured(perf:energy-ram/cpu0)",
        "measured(perf:energy-ram/cpu36)",
    ];
    assert_eq!(sources, expected);
}

#[test]
fn perf_that_is_denied_or_not_there_says_so() {
    let mut fake = FakePerf::new();
    fake.be(State::Denied);
    let said = fake.open().unwrap_err().to_string();
    assert!(said.contains("perf_event_open is denied"), "{said}");
    assert!(said.contains("perf_event_paranoid=0"), "{said}");
    let nothing = tempfile::tempdir().unwrap();
    let said = Perf::open(&Tree::at(nothing.path())).unwrap_err().to_string();
    assert_eq!(said, "no meter `perf` here: the kernel has no PMU `power`");
}

#[test]
fn perf_refuses_what_it_cannot_read() {
    let pmu = "sys/bus/event_source/devices/power";
    let table = [
        ("cpumask", "0-", "a list of processors"),
        ("cpumask", "9-3", "a list of processors"),
        ("events/energy-pkg", "umask=1", "an event such as event=0x02"),
        ("events/energy-pkg.scale", "many", "joules of one count"),
        ("type", "-1", "a whole number"),
    ];
    for (file, text, expected) in table {
        let fake = FakePerf::new();
        write(&fake.0.folder.path().join(pmu).join(file), text);
        let said = fake.open().unwrap_err().to_string();
        assert!(said.contains(expected), "{file} = {text}: {said}");
    }
}

/// A board with chips that count energy, state power, do both, or state voltage and current.
struct FakeHwmon {
    files: Files,
    chip: Option<&'static str>,
}

impl FakeHwmon {
    fn new(chip: Option<&'static str>) -> Self {
        let files = [
            ("hwmon0/name", "coretemp\n"),
            ("hwmon0/temp1_input", "40000\n"),
            ("hwmon1/name", "counting\n"),
            ("hwmon1/energy1_input", "1000000\n"),
            ("hwmon1/energy1_label", "socket\n"),
            ("hwmon2/name", "power_meter\n"),
            ("hwmon2/power1_average", "250000000\n"),
            ("hwmon3/name", "ina3221\n"),
            ("hwmon3/in1_input", "5000\n"),
            ("hwmon3/curr1_input", "400\n"),
            ("hwmon3/in1_label", "VDD_IN\n"),
            ("hwmon3/in7_input", "5000\n"),
            ("hwmon4/name", "both\n"),
            ("hwmon4/energy1_input", "5\n"),
            ("hwmon4/power1_input", "1\n"),
        ]
        .map(|(path, text)| (format!("sys/class/hwmon/{path}"), text));
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let counter = match chip {
            Some("power_meter") => "sys/class/hwmon/hwmon2/power1_average",
            Some("ina3221") => "sys/class/hwmon/hwmon3/curr1_input",
            _ => "sys/class/hwmon/hwmon1/energy1_input",
        };
        Self { files: Files::new(&files, &[counter]), chip }
    }
}

impl Fake for FakeHwmon {
    fn open(&self) -> Result<Box<dyn Meter>, EnergyError> {
        Ok(Box::new(Hwmon::open(&self.files.tree(), self.chip)?))
    }

    fn spend(&mut self, energy_uj: u64) -> Spent {
        if self.chip == Some("counting") {
            self.files.add(energy_uj, u64::MAX);
            return Spent::Exactly;
        }
        Spent::WithTime
    }

    fn range_uj(&self) -> Option<u64> {
        None
    }

    fn be(&mut self, state: State) {
        self.files.be(state);
    }
}

#[test]
fn hwmon_keeps_the_contract() {
    for chip in ["counting", "power_meter", "ina3221"] {
        conformance::all(&|| Box::new(FakeHwmon::new(Some(chip))));
    }
}

#[test]
fn hwmon_has_every_sensor_that_knows_power() {
    let meter = FakeHwmon::new(None).open().unwrap();
    let domains: Vec<(&str, Part)> = meter
        .domains()
        .iter()
        .map(|domain| (domain.name.as_str(), domain.part))
        .collect();
    let expected = [
        ("counting/socket", Part::Other),
        ("power_meter/power1", Part::Machine),
        ("ina3221/VDD_IN", Part::Other),
        ("both/energy1", Part::Other),
    ];
    assert_eq!(domains, expected);
}

#[test]
fn hwmon_without_such_a_chip_says_what_there_is() {
    let said = FakeHwmon::new(Some("ina219")).open().unwrap_err().to_string();
    assert_eq!(
        said,
        "no meter `hwmon` here: no chip called `ina219` has an energy or power sensor; \
         here is coretemp, counting, power_meter, ina3221, both"
    );
}

#[test]
fn hwmon_whose_counter_was_reset_does_not_guess() {
    let fake = FakeHwmon::new(Some("counting"));
    let mut meter = fake.open().unwrap();
    fs::write(&fake.files.counters[0], "7").unwrap();
    let said = meter.read().unwrap_err().to_string();
    assert!(said.contains("counting/socket fell from 1000000 to 7"), "{said}");
    assert!(meter.read().is_ok(), "it counts from there");
}

/// A program that prints watts.
struct FakeCommand {
    folder: TempDir,
}

impl FakeCommand {
    fn new() -> Self {
        let mut fake = Self { folder: tempfile::tempdir().unwrap() };
        fake.be(State::Well);
        fake
    }

    fn script(&self) -> PathBuf {
        self.folder.path().join("watts")
    }
}

impl Fake for FakeCommand {
    fn open(&self) -> Result<Box<dyn Meter>, EnergyError> {
        Ok(Box::new(CommandMeter::open(&format!("sh {}", self.script().display()))?))
    }

    fn spend(&mut self, _: u64) -> Spent {
        Spent::WithTime
    }

    fn range_uj(&self) -> Option<u64> {
        None
    }

    fn be(&mut self, state: State) {
        match state {
            State::Well => fs::write(self.script(), "echo 42.5").unwrap(),
            State::Denied => fs::write(self.script(), "echo no >&2; exit 1").unwrap(),
            State::Vanished => fs::remove_file(self.script()).unwrap(),
            State::Garbled => fs::write(self.script(), "echo warm").unwrap(),
        }
    }
}

#[test]
fn a_command_keeps_the_contract() {
    conformance::all(&|| Box::new(FakeCommand::new()));
}

/// A library that answers as NVIDIA's does, with the contents of a file: an error number and
/// millijoules.
struct FakeNvml {
    folder: TempDir,
    spent_mj: Cell<u64>,
}

impl FakeNvml {
    /// `None` where there is no C compiler.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml.c");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .arg(folder.path().join("libnvidia-ml.so.1"))
            .arg(format!("-DSAYS=\"{}\"", folder.path().join("says").display()))
            .arg(source)
            .status();
        match compiled {
            Ok(status) => assert!(status.success(), "tests/nvml.c does not compile"),
            Err(error) => {
                eprintln!("skipped: the meter nvml over a library (no cc: {error})");
                return None;
            }
        }
        let fake = Self { folder, spent_mj: Cell::new(5_000_000) };
        fake.say(0);
        Some(fake)
    }

    fn say(&self, error: u32) {
        let text = format!("{error} {}\n", self.spent_mj.get());
        fs::write(self.folder.path().join("says"), text).unwrap();
    }
}

impl Fake for FakeNvml {
    fn open(&self) -> Result<Box<dyn Meter>, EnergyError> {
        let library = self.folder.path().join("libnvidia-ml.so.1");
        Ok(Box::new(NvmlMeter::open(library.as_os_str())?))
    }

    fn spend(&mut self, energy_uj: u64) -> Spent {
        self.spent_mj.set(self.spent_mj.get() + energy_uj / 1000);
        self.say(0);
        Spent::Exactly
    }

    fn range_uj(&self) -> Option<u64> {
        None
    }

    fn be(&mut self, state: State) {
        // nvmlReturn_t: 4 NO_PERMISSION, 15 GPU_IS_LOST, 999 UNKNOWN.
        self.say(match state {
            State::Well => 0,
            State::Denied => 4,
            State::Vanished => 15,
            State::Garbled => 999,
        });
    }
}

#[test]
fn nvml_keeps_the_contract() {
    if FakeNvml::new().is_none() {
        return;
    }
    conformance::all(&|| Box::new(FakeNvml::new().unwrap()));
}

#[test]
fn nvml_leaves_out_boards_without_a_counter() {
    let Some(fake) = FakeNvml::new() else { return };
    let meter = fake.open().unwrap();
    let sources: Vec<&str> =
        meter.domains().iter().map(|domain| domain.source.as_str()).collect();
    // The library's second board is an old one.
    assert_eq!(sources, ["measured(nvml:gpu-0)", "measured(nvml:gpu-2)"]);
    // 3 NOT_SUPPORTED, of all boards.
    fake.say(3);
    let said = fake.open().unwrap_err().to_string();
    assert_eq!(
        said,
        "no meter `nvml` here: none of 3 boards reports its energy or power"
    );
}

#[test]
fn nvml_integrates_the_power_of_a_board_without_a_counter() {
    let Some(fake) = FakeNvml::new() else { return };
    let says = fake.folder.path().join("says");
    fs::write(&says, "0 5000000 250000\n").unwrap();
    let mut meter = fake.open().unwrap();
    let names: Vec<_> = meter.domains().iter().map(|d| d.name.clone()).collect();
    assert_eq!(names, ["gpu-0", "gpu-2", "gpu-3/power"]);
    let began = Instant::now();
    let before = meter.read().unwrap()[2];
    std::thread::sleep(Duration::from_millis(20));
    let used = meter.read().unwrap()[2].energy_uj - before.energy_uj;
    let most = began.elapsed().as_secs_f64() * 250e6;
    assert!((4_900_000..=10_000_000_000).contains(&used), "20 ms at 250 W: {used} µJ");
    assert!(f64::from(u32::try_from(used).unwrap()) <= most + 1.0, "{used} of {most}");
}

#[test]
fn nvml_whose_driver_was_loaded_anew_does_not_guess() {
    let Some(fake) = FakeNvml::new() else { return };
    let mut meter = fake.open().unwrap();
    fake.spent_mj.set(1);
    fake.say(0);
    let error = meter.read().unwrap_err();
    assert!(matches!(error, EnergyError::WentBack { .. }), "{error}");
}
