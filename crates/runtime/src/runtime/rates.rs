//! What a batch takes each prong, remembered from run to run: the first epoch of a run begins with
//! what the last epoch of the run before showed, as later epochs begin with the one before them.
//!
//! **Where.** In a folder next to the side index (`bothends/rates` in the user's cache directory), one
//! small JSON file for each kind of run. What a host's batch takes depends on all that [`Kind`]
//! names; its hash is the file's name, and all of it is in the file. What a device's batch takes is
//! in the same file, under the name that the device was given by (`--csd`). Nothing is kept where
//! the run says no folder, which is so when its user wants no side index either: who wants nothing
//! kept says so once.
//!
//! **What is kept.** The mean over an epoch, of prongs that made a few batches in it. A file is
//! written when an epoch has ended, and only where a time is another by more than an eighth than
//! what the file says: not in every epoch of a long run.
//!
//! **What is believed.** A rate from before is a first guess, one of the times of which strategies
//! take the mean: it decides nothing that is delivered, and a wrong one costs a few batches
//! (`simulate/tests/priors.rs`). So a file that is missing, cut, of another version, of another run
//! whose name is the same, too long, or that says what no batch takes, is none, and no error. Nor
//! is one that cannot be written.
//!
//! **Others.** Processes replace the file as a whole, and what another has written of other devices
//! stays; of two that write at once the later one counts. Most files are [`MOST_FILES`]; those that
//! were not written to for longest make room.

use std::collections::BTreeMap;
use std::fs;
use std::hash::Hasher as _;
use std::io::{Read, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use bothends_core::ids::SampleId;
use bothends_core::tensor::Output;
use bothends_io::{open_regular, replace};
use bothends_ops::kernels::Level;
use serde::{Deserialize, Serialize};
use twox_hash::{XxHash3_64, XxHash3_128};

use crate::collect::producer::LineReport;
use crate::config::run::RunConfig;
use crate::config::share::Processors;
use crate::devices::spec::DeviceSpec;
use crate::read::remote::without_secrets;
use crate::read::source::Source;
use crate::threads::process;

/// Of the form of a file.
const VERSION: u32 = 1;

/// Batches that a prong made in an epoch at least, for their mean to say something.
const ENOUGH: u64 = 4;

/// What a batch may take, in nanoseconds: a microsecond to a day.
const BELIEVED: RangeInclusive<u64> = 1_000..=86_400_000_000_000;

/// A time is the same as another if it differs by less than one part in so many.
const SAME: u64 = 8;

/// Longest file: hundreds of devices.
const MOST_BYTES: u64 = 64 << 10;

/// Most files in the folder.
const MOST_FILES: usize = 256;

/// Samples by which a data set is recognised, besides its name and its length.
const PROBES: u64 = 64;

const EXTENSION: &str = "json";

/// Everything that a host's batch takes its time from. Machines are told by their kind: a user's
/// directory may be that of many, and a container has another name every time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    program: String,
    machine: String,
    kernels: String,
    data: String,
    /// Of the data's path, and of where and how long some of the records are.
    data_hash: String,
    n_samples: u64,
    recipe: String,
    output: Output,
    batch_size: u32,
    workers: u32,
    /// Processes that share the machine.
    ranks: u32,
    /// Emulated devices compute next to the workers.
    emulated: usize,
    reader: String,
    page_cache: bool,
}

impl Kind {
    fn of(config: &RunConfig, source: &Source) -> Self {
        let data = config.data.canonicalize();
        let data = data.unwrap_or_else(|_| without_secrets(&config.data));
        let is_emulated = |spec: &&DeviceSpec| matches!(spec, DeviceSpec::Sim(_));
        Self {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            machine: machine(config),
            kernels: Level::of_process().name().to_owned(),
            data: data.display().to_string(),
            data_hash: data_hash(&data, source),
            n_samples: source.n_samples(),
            recipe: format!("{:032x}", config.recipe.hash()),
            output: config.output,
            batch_size: config.batch_size,
            workers: config.workers,
            ranks: config.share.ranks.n(),
            emulated: config.devices.iter().filter(is_emulated).count(),
            reader: format!("{:?}", config.read.kind),
            page_cache: source.goes_through_page_cache(),
        }
    }
}

fn machine(config: &RunConfig) -> String {
    let Processors { allowed, machine, quota_milli, .. } = config.share.processors;
    let gib = process::machine_memory_bytes().unwrap_or(0) >> 30;
    let name = process::processor();
    let quota = quota_milli.map_or(String::new(), |n| format!(", {n}/1000 of one"));
    format!("{name}, {allowed} of {machine} processors{quota}, {gib} GiB")
}

/// A few records stand for all: a table may have a hundred million.
fn data_hash(data: &Path, source: &Source) -> String {
    let mut hash = XxHash3_64::new();
    hash.write(data.as_os_str().as_encoded_bytes());
    let n_samples = source.n_samples();
    let step = n_samples.div_ceil(PROBES).max(1);
    for sample in (0..PROBES).map(|n| n * step).take_while(|s| *s < n_samples) {
        let key = source.table.index_key(SampleId(sample));
        hash.write(&key.to_le_bytes());
    }
    format!("{:016x}", hash.finish())
}

/// Nanoseconds of a batch, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rates {
    /// Of the host, all workers together.
    front_ns: Option<u64>,
    /// Of devices by name; of several with one name in their order.
    back_ns: BTreeMap<String, Vec<Option<u64>>>,
}

impl Rates {
    fn device_ns(&self, name: &str, nth: usize) -> Option<u64> {
        *self.back_ns.get(name)?.get(nth)?
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        let back = self.back_ns.values().flatten().copied();
        std::iter::once(self.front_ns).chain(back).flatten()
    }

    /// Takes over what `newer` knows; whether that is news.
    fn learn(&mut self, newer: &Self) -> bool {
        let mut is_news = learn(&mut self.front_ns, newer.front_ns);
        for (name, times) in &newer.back_ns {
            let known = self.back_ns.entry(name.clone()).or_default();
            known.resize(known.len().max(times.len()), None);
            for (known, new) in known.iter_mut().zip(times) {
                is_news |= learn(known, *new);
            }
        }
        is_news
    }
}

fn learn(known: &mut Option<u64>, new: Option<u64>) -> bool {
    let Some(new) = new else { return false };
    let is_news = known.is_none_or(|known| new.abs_diff(known) > known / SAME);
    if is_news {
        *known = Some(new);
    }
    is_news
}

/// What stands in a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    of: Kind,
    rates: Rates,
}

/// The rates of this kind of run. Without a folder it knows nothing and keeps nothing.
#[derive(Debug)]
pub(crate) struct RememberedRates {
    file: Option<RatesFile>,
    known: Rates,
}

#[derive(Debug)]
struct RatesFile {
    folder: PathBuf,
    name: String,
    kind: Kind,
}

impl RememberedRates {
    /// What is remembered of a run like this one.
    pub(crate) fn of(config: &RunConfig, source: &Source) -> Self {
        let file = config.rates.as_deref().and_then(|folder| {
            let kind = Kind::of(config, source);
            let text = serde_json::to_vec(&(VERSION, &kind)).ok()?;
            let name = format!("{:032x}.{EXTENSION}", XxHash3_128::oneshot(&text));
            Some(RatesFile { folder: folder.to_owned(), name, kind })
        });
        let known = file.as_ref().and_then(RatesFile::read).unwrap_or_default();
        Self { file, known }
    }

    /// Of a batch of the host's workers together, in nanoseconds.
    pub(crate) fn front_ns(&self) -> Option<u64> {
        self.known.front_ns
    }

    /// Of a batch of the device that is the `nth` of those with this name, counted from 0.
    pub(crate) fn device_ns(&self, name: &str, nth: usize) -> Option<u64> {
        self.known.device_ns(name, nth)
    }

    /// Keeps what an epoch showed, where it is news. Writes a file of a kilobyte or so, and does
    /// not wait for the storage to have it.
    pub(crate) fn keep<'a>(
        &mut self,
        front: &LineReport,
        back: impl Iterator<Item = (&'a str, &'a LineReport)>,
    ) {
        let Some(file) = &self.file else { return };
        let mut seen = Rates { front_ns: shown(front), ..Rates::default() };
        for (name, report) in back {
            seen.back_ns.entry(name.to_owned()).or_default().push(shown(report));
        }
        if self.known.learn(&seen) && file.write(&self.known).is_none() {
            // Whatever hinders it: the next run begins as a first one does.
            self.file = None;
        }
    }
}

/// What an epoch shows of a prong's time.
fn shown(report: &LineReport) -> Option<u64> {
    let mean_ns = report.mean_ns().filter(|_| report.n_made >= ENOUGH);
    mean_ns.filter(|ns| BELIEVED.contains(ns))
}

impl RatesFile {
    fn read(&self) -> Option<Rates> {
        let mut text = Vec::new();
        let file = open_regular(&self.folder.join(&self.name)).ok()?;
        file.take(MOST_BYTES + 1).read_to_end(&mut text).ok()?;
        if text.len() as u64 > MOST_BYTES {
            return None;
        }
        let Written { version, of, rates } = serde_json::from_slice(&text).ok()?;
        let is_ours = version == VERSION && of == self.kind;
        (is_ours && rates.all().all(|ns| BELIEVED.contains(&ns))).then_some(rates)
    }

    /// Replaces the file; `None` where that cannot be done.
    fn write(&self, known: &Rates) -> Option<()> {
        // What others have written since, of devices that are not this run's.
        let mut all = self.read().unwrap_or_default();
        all.learn(known);
        let text = self.text(all).or_else(|| self.text(known.clone()))?;
        fs::create_dir_all(&self.folder).ok()?;
        let path = self.folder.join(&self.name);
        let is_new = !path.exists();
        replace(&path, |mut file| file.write_all(&text)).ok()?;
        if is_new {
            make_room(&self.folder, &path);
        }
        Some(())
    }

    fn text(&self, rates: Rates) -> Option<Vec<u8>> {
        let written = Written { version: VERSION, of: self.kind.clone(), rates };
        let text = serde_json::to_vec_pretty(&written).ok()?;
        (text.len() as u64 <= MOST_BYTES).then_some(text)
    }
}

/// Removes the files that were not written to for longest until [`MOST_FILES`] are left, `own`
/// among them; none but ours.
fn make_room(folder: &Path, own: &Path) {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut ours: Vec<_> = files
        .filter(|entry| entry.file_name().to_str().is_some_and(is_ours))
        .filter_map(|entry| {
            let written = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((written.modified().ok()?, entry.path()))
        })
        .filter(|(_, path)| path != own)
        .collect();
    ours.sort();
    let n_too_many = (ours.len() + 1).saturating_sub(MOST_FILES);
    for (_, path) in &ours[..n_too_many] {
        // Another process may have been quicker.
        let _ = fs::remove_file(path);
    }
}

fn is_ours(name: &str) -> bool {
    let Some((stem, rest)) = name.split_once(".json") else { return false };
    let is_hash = stem.len() == 32 && stem.bytes().all(|b| b.is_ascii_hexdigit());
    // A process that was killed while it wrote leaves a file that is not whole.
    is_hash && (rest.is_empty() || rest.ends_with(".tmp"))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use bothends_core::recipe::Recipe;

    const MS: u64 = 1_000_000;

    /// A run of two records, with its folder.
    fn run(root: &Path) -> RunConfig {
        let data = root.join("data");
        if !data.exists() {
            fs::create_dir(&data).unwrap();
            fs::write(data.join("data_batch_1.bin"), vec![0; 2 * 3073]).unwrap();
        }
        let recipe = Recipe::builtin("cifar10-eval").unwrap();
        RunConfig { rates: Some(root.join("a/rates")), ..RunConfig::new(data, recipe) }
    }

    fn remembered(config: &RunConfig) -> RememberedRates {
        RememberedRates::of(config, &Source::open(config).unwrap())
    }

    fn epoch(n_made: u64, mean_ns: u64) -> LineReport {
        LineReport { n_made, total_ns: n_made * mean_ns, ..LineReport::default() }
    }

    /// Keeps an epoch of the host and devices, and gives what the next run knows.
    fn kept(
        config: &RunConfig,
        front: &LineReport,
        back: &[(&str, LineReport)],
    ) -> RememberedRates {
        remembered(config).keep(front, back.iter().map(|(name, line)| (*name, line)));
        remembered(config)
    }

    /// The one file of the folder.
    fn file(config: &RunConfig) -> PathBuf {
        let entries = fs::read_dir(config.rates.as_ref().unwrap()).unwrap();
        let paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        let [path] = &paths[..] else { panic!("{paths:?}") };
        path.clone()
    }

    #[test]
    fn what_one_run_showed_the_next_knows() {
        let root = tempfile::tempdir().unwrap();
        let config = run(root.path());
        assert_eq!(remembered(&config).front_ns(), None);
        let devices =
            [("nas", epoch(9, 7 * MS)), ("nas", epoch(4, 8 * MS)), ("dpu", epoch(0, 0))];
        let next = kept(&config, &epoch(4, 5 * MS), &devices);
        assert_eq!(next.front_ns(), Some(5 * MS));
        assert_eq!(next.device_ns("nas", 0), Some(7 * MS));
        assert_eq!(next.device_ns("nas", 1), Some(8 * MS), "the second of that name");
        assert_eq!((next.device_ns("nas", 2), next.device_ns("dpu", 0)), (None, None));
        assert!(fs::metadata(file(&config)).unwrap().len() < 2048);
        // Other devices, and a run of the host alone: what was known stays.
        let next = kept(&config, &epoch(4, 9 * MS), &[("dpu", epoch(5, MS))]);
        assert_eq!(next.front_ns(), Some(9 * MS));
        assert_eq!(next.device_ns("nas", 1), Some(8 * MS));
        assert_eq!(next.device_ns("dpu", 0), Some(MS));
    }

    #[test]
    fn few_batches_and_absurd_times_say_nothing_and_no_news_is_not_written() {
        let root = tempfile::tempdir().unwrap();
        let config = run(root.path());
        for front in [epoch(3, 5 * MS), epoch(4, 5), epoch(4, 1 << 60), epoch(0, 0)] {
            assert_eq!(kept(&config, &front, &[]).front_ns(), None, "{front:?}");
        }
        assert!(!root.path().join("a").exists(), "nothing is known: no folder either");
        kept(&config, &epoch(9, 8 * MS), &[]);
        let path = file(&config);
        fs::remove_file(&path).unwrap();
        let mut rates = remembered(&config);
        rates.known.front_ns = Some(8 * MS);
        rates.keep(&epoch(9, 9 * MS), std::iter::empty());
        assert!(!path.exists(), "an eighth more is no news");
        rates.keep(&epoch(9, 9 * MS + 1), std::iter::empty());
        assert!(path.exists());
    }

    #[test]
    fn every_setting_that_changes_a_host_s_time_makes_another_kind_of_run() {
        let root = tempfile::tempdir().unwrap();
        let config = run(root.path());
        assert!(kept(&config, &epoch(4, 5 * MS), &[]).front_ns().is_some());
        let same = RunConfig { seed: 7, repeat: 3, audit_percent: 5, ..config.clone() };
        assert!(remembered(&same).front_ns().is_some());
        let output = Output { dtype: bothends_core::tensor::Dtype::F32, ..config.output };
        let recipe = Recipe::builtin("cifar10-train").unwrap();
        let planar = config.recipe.clone();
        let planar = planar.with_numerics(bothends_core::recipe::Numerics::Planar);
        let mut read = config.read;
        read.kind = bothends_io::ReaderKind::Pread;
        let mut share = config.share;
        share.processors.allowed += 1;
        let device = "sim:newport".parse().unwrap();
        let base = || config.clone();
        for other in [
            RunConfig { batch_size: 17, ..base() },
            RunConfig { workers: 2, ..base() },
            RunConfig { limit: Some(1), ..base() },
            RunConfig { output, ..base() },
            RunConfig { recipe, ..base() },
            RunConfig { recipe: planar, ..base() },
            RunConfig { read, ..base() },
            RunConfig { share, ..base() },
            RunConfig { devices: vec![device], ..base() },
        ] {
            assert_eq!(remembered(&other).front_ns(), None, "{other:?}");
        }
        // Other data at the same place, of the same length.
        let data = config.data.join("data_batch_1.bin");
        fs::rename(data, config.data.join("data_batch_2.bin")).unwrap();
        assert_eq!(remembered(&config).front_ns(), None);
    }

    #[test]
    fn a_file_that_is_not_as_it_was_written_is_none_and_is_written_anew() {
        let root = tempfile::tempdir().unwrap();
        let config = run(root.path());
        kept(&config, &epoch(4, 5 * MS), &[("nas", epoch(4, 7 * MS))]);
        let path = file(&config);
        let right = fs::read_to_string(&path).unwrap();
        let with = |old: &str, new: &str| {
            assert!(right.contains(old), "{old}");
            right.replace(old, new).into_bytes()
        };
        let nested = "[".repeat(60_000);
        let long = format!("{right}{}", " ".repeat(70_000));
        let bad = [
            Vec::new(),
            b"\0\xff\xfe".to_vec(),
            b"null".to_vec(),
            b"{}".to_vec(),
            nested.into_bytes(),
            long.into_bytes(),
            right.as_bytes()[..right.len() / 2].to_vec(),
            [right.as_bytes(), b"x"].concat(),
            with("\"version\": 1", "\"version\": 2"),
            with("\"version\": 1", "\"version\": 1, \"version\": 1"),
            with("\"version\": 1", "\"version\": 1, \"more\": 1"),
            with("\"batch_size\": 16", "\"batch_size\": 17"),
            with("\"front_ns\": 5000000", "\"front_ns\": 0"),
            with("\"front_ns\": 5000000", "\"front_ns\": 999"),
            with("\"front_ns\": 5000000", "\"front_ns\": 86400000000001"),
            with("\"front_ns\": 5000000", "\"front_ns\": 18446744073709551616"),
            with("\"front_ns\": 5000000", "\"front_ns\": -5000000"),
            with("\"front_ns\": 5000000", "\"front_ns\": 5e6"),
            with("\"front_ns\": 5000000", "\"front_ns\": \"5000000\""),
            with("7000000", "0"),
            with("\"back_ns\": {", "\"back_ns\": {\"x\": 1,"),
        ];
        for text in bad {
            fs::write(&path, &text).unwrap();
            let shown =
                String::from_utf8_lossy(&text[..text.len().min(900)]).into_owned();
            let known = remembered(&config);
            assert_eq!(known.known, Rates::default(), "{shown}");
            let next = kept(&config, &epoch(4, 6 * MS), &[]);
            assert_eq!(next.front_ns(), Some(6 * MS), "{shown}");
            assert_eq!(next.device_ns("nas", 0), None, "{shown}");
        }
        fs::write(&path, &right).unwrap();
        assert_eq!(remembered(&config).front_ns(), Some(5 * MS));
    }

    #[test]
    fn what_is_no_file_or_cannot_be_written_costs_nothing_but_the_rates() {
        let root = tempfile::tempdir().unwrap();
        let config = run(root.path());
        kept(&config, &epoch(4, 5 * MS), &[]);
        let path = file(&config);
        fs::remove_file(&path).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(remembered(&config).front_ns(), None, "a socket is no file");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(kept(&config, &epoch(4, 5 * MS), &[]).front_ns(), None);
        assert_eq!(file(&config), path, "nothing is left of the attempt");
        let nowhere =
            RunConfig { rates: Some(config.data.join("data_batch_1.bin/x")), ..config };
        assert_eq!(kept(&nowhere, &epoch(4, 5 * MS), &[]).front_ns(), None);
        let off = RunConfig { rates: None, ..nowhere };
        assert_eq!(kept(&off, &epoch(4, 5 * MS), &[]).front_ns(), None);
    }

    #[test]
    fn processes_that_write_at_once_leave_a_whole_file_with_all_their_devices() {
        let root = tempfile::tempdir().unwrap();
        let config = run(root.path());
        let names = ["a", "b", "c", "d"];
        std::thread::scope(|scope| {
            for (name, n) in names.into_iter().zip(1..) {
                let mut rates = remembered(&config);
                scope.spawn(move || {
                    for round in 1..=50 {
                        let back = epoch(4, n * round * MS);
                        rates.keep(&epoch(4, round * MS), [(name, &back)].into_iter());
                    }
                });
            }
            for _ in 0..200 {
                let seen = remembered(&config).known;
                assert!(seen == Rates::default() || seen.front_ns.is_some(), "{seen:?}");
            }
        });
        let known = remembered(&config);
        assert!(known.front_ns().is_some(), "{known:?}");
        file(&config);
        for (name, n) in names.into_iter().zip(1..) {
            let known = kept(&config, &epoch(0, 0), &[(name, epoch(4, n * MS))]);
            assert_eq!(known.device_ns(name, 0), Some(n * MS));
        }
    }

    #[test]
    fn the_folder_is_bounded_and_holds_what_is_not_ours_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let config = run(root.path());
        let folder = config.rates.clone().unwrap();
        fs::create_dir_all(&folder).unwrap();
        let now = SystemTime::now();
        for n in 0..300_u64 {
            let cut = if n == 7 { ".1-2.tmp" } else { "" };
            let name = format!("{n:032x}.json{cut}");
            let file = fs::File::create(folder.join(name)).unwrap();
            file.set_modified(now - Duration::from_secs(1000 - n)).unwrap();
        }
        for foreign in ["notes.json", "0.json", "readme"] {
            fs::write(folder.join(foreign), "").unwrap();
        }
        assert!(kept(&config, &epoch(4, 5 * MS), &[]).front_ns().is_some());
        let names = fs::read_dir(&folder).unwrap();
        let names: Vec<_> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let n_ours = names.iter().filter(|name| is_ours(name)).count();
        assert_eq!((n_ours, names.len()), (MOST_FILES, MOST_FILES + 3));
        let is_there = |n: u64| names.contains(&format!("{n:032x}.json"));
        assert!(!is_there(0) && !is_there(44) && is_there(45) && is_there(299));
        assert!(names.iter().all(|name| !name.ends_with(".tmp")));
    }

    #[test]
    fn a_thousand_devices_have_no_file_longer_than_is_read() {
        let root = tempfile::tempdir().unwrap();
        let config = run(root.path());
        let names: Vec<_> =
            (0..1500).map(|n| format!("tcp://device-{n:04}:7070")).collect();
        let back = |n: usize| names[..n].iter().map(|name| (&**name, epoch(4, 5 * MS)));
        let few: Vec<_> = back(200).collect();
        assert!(
            kept(&config, &epoch(4, 5 * MS), &few).device_ns(&names[199], 0).is_some()
        );
        let many: Vec<_> = back(1500).collect();
        let next = kept(&config, &epoch(4, 5 * MS), &many);
        assert_eq!(next.device_ns(&names[0], 0), Some(5 * MS), "as it was before");
        assert!(fs::metadata(file(&config)).unwrap().len() <= MOST_BYTES);
    }
}
