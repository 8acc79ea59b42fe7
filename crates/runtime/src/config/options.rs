//! A loader's options as one JSON object: what Python, C and Rust say a run with.
//!
//! Text in, [`RunConfig`] out; every default of a loader lives in [`options`]. A key means
//! what the flag of `bothends run` with its name means, in the words of training scripts:
//!
//! | key | value | if left out |
//! |---|---|---|
//! | `data` | path of the data set, or an object: data sets to mix, `{"sources": [{"name": …, "data": …, "weight": …}], "stop": "first", "replacement": false, "labels": "merge"}` | – |
//! | `recipe` | a built-in recipe's name, a file, or the recipe itself as an object | – |
//! | `batch_size` | samples of a batch of one rank | 64 |
//! | `seed` | of order and augmentation | 0 |
//! | `shuffle` | `true`, `false`, or `"supplied"`: every epoch's order is given when it begins | `true` |
//! | `fields` | list of further fields that batches have; `name:text`, `name:bytes` say what its bytes are taken for | none |
//! | `limit`, `repeat` | first N samples only; times the data are run in an epoch | all, 1 |
//! | `workers` | host threads, or `"auto"`: one per core, divided by the ranks here | `"auto"` |
//! | `csds` | list of devices, as `--csd` | none |
//! | `require_devices` | `true`: a device that is missing when the loader is opened is an error; else it is tried again | `false` |
//! | `key_file` | key that devices and this host share, for `tcp+noise://` | none |
//! | `tls_ca`, `tls_cert`, `tls_key` | PEM files for `tls://`: authorities, this host's certificate, its key | none |
//! | `insecure` | `true`: `tcp://`, which is not encrypted, may leave this machine, with a key, if the device allows it too | `false` |
//! | `job`, `priority`, `share` | the training job that this process is of, for agents that several jobs share: its name; -4 to 4, each step doubles its part; 1 to 100, its part next to those of other jobs | a job of its own, 0, 1 |
//! | `strategy` | `ordered`, `relaxed`, `mte`, `wrr`, `cpu`, `csd` | `ordered` |
//! | `objective` | `throughput`, `energy`, `host-cpu-cap=P` | `throughput` |
//! | `device` | where batches end: `"cpu"`, `"cuda:N"`, or `"cuda"`, the GPU of this process among the ranks here | `"cpu"` |
//! | `pin_memory` | `true`, or a GPU as in `device`: batches in host memory are pinned for it | `false` |
//! | `output`, `layout` | `u8`, `f32`, `f16`, `bf16`; `nhwc`, `nchw` | `u8`, `nhwc` |
//! | `rank`, `world_size` | this process among how many | 0, 1 |
//! | `last` | `drop`, `pad`, `wrap`, `even` | `drop` |
//! | `on_bad` | `raise`, `skip`, `replace`, `zero` | `raise` |
//! | `audit` | percent of device batches of which the host makes rows again | 1 |
//! | `memory` | MiB that batches may take on the host, a limit | an eighth of what is available |
//! | `held_batches` | batches the consumer may hold at once | 1 |
//! | `reader` | `auto`, `io_uring` (also `uring`), `pread` | `auto` |
//! | `side_index` | `auto` (kept in the cache directory), `beside` (the data), `off`: nothing is kept, the prongs' rates neither; `cache_size` is apart | `auto` |
//! | `page_cache` | `auto`, `through`, `past` | `auto` |
//! | `cache_size` | most bytes of the block cache, a number or a text such as `50G`; `auto`: it grows for data on other machines only; `off` | `auto` |
//! | `fetch_requests`, `fetch_reorder` | of remote data: most requests in flight; most bytes requested and not yet with the workers, a number or a text such as `256M` | 256, by memory |
//! | `fetch_patience` | seconds for which a store that has answered before may be gone before the run ends | 120 |
//! | `cache` | a directory in which records fetched from a remote store are kept for later epochs, `cache_size` bytes at most (64 GiB with `auto`) | none: nothing is kept |

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use bothends_core::nearest::did_you_mean;
use bothends_core::one_line;
use bothends_core::plan::{LastPolicy, Shuffle};
use bothends_core::recipe::Recipe;
use bothends_core::tensor::{Dtype, Layout, Output};
use bothends_csd::{JobTerms, TlsFiles};
use bothends_io::ReaderKind;
use bothends_side_index::user_cache;
use serde_json::{Map, Value};

use crate::config::cache::CacheSize;
use crate::config::deliver::Deliver;
use crate::config::fetch::FetchBounds;
use crate::config::mix::MixedData;
use crate::config::run::{
    MemoryBudget, PageCacheUse, RankConfig, ReadConfig, RunConfig, SideIndexUse,
};
use crate::config::share::{Ranks, Share};
use crate::devices::spec::DeviceSpec;
use crate::error::RuntimeError;

/// Reads a loader's options, for a process that is alone on its machine; [`options_among`] is for
/// the others. Blocks on the file system where `recipe` is a file.
///
/// # Errors
/// [`RuntimeError::Options`] names the key, what it is and what is expected.
pub fn options(json: &str) -> Result<RunConfig, RuntimeError> {
    options_among(json, Ranks::ALONE)
}

/// The same for one of several ranks on a machine: what is left to `auto` is its part.
///
/// # Errors
/// As [`options`].
pub fn options_among(json: &str, ranks: Ranks) -> Result<RunConfig, RuntimeError> {
    parse(json, Share::here(ranks)).map_err(RuntimeError::Options)
}

fn parse(json: &str, share: Share) -> Result<RunConfig, String> {
    let value = serde_json::from_str(json)
        .map_err(|e| format!("the options are not JSON ({e}); give one object"))?;
    let Value::Object(map) = value else {
        return Err("the options are not a JSON object".to_owned());
    };
    let mut keys = Keys(map, Vec::new());
    let data = keys.take("data").ok_or("`data` is missing; give the path of the data")?;
    let recipe = recipe(keys.take("recipe"))?;
    let defaults = match data {
        Value::String(path) => RunConfig::new(PathBuf::from(path), recipe),
        Value::Object(mix) => RunConfig::mixed(MixedData::from_json(mix)?, recipe),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) => {
            return Err(format!("`data` is {other}; give a text"));
        }
    };
    let read = read(&mut keys, defaults.read)?;
    let config = RunConfig {
        cache: keys.text("cache")?.map(PathBuf::from),
        batch_size: keys.whole("batch_size", 1)?.unwrap_or(64),
        seed: keys.whole("seed", 0)?.unwrap_or(0),
        shuffle: keys.choice("shuffle", &shuffles())?.unwrap_or(Shuffle::Full),
        fields: fields(keys.take("fields"))?,
        limit: keys.whole("limit", 1)?,
        repeat: keys.whole("repeat", 1)?.unwrap_or(1),
        workers: workers(&mut keys, share)?,
        share,
        read,
        rates: rates_folder(read.side_index),
        devices: devices(keys.take("csds"))?,
        require_devices: keys.choice("require_devices", &YES_NO)?.unwrap_or(false),
        key_file: keys.text("key_file")?.map(PathBuf::from),
        tls: tls(&mut keys)?,
        insecure: keys.choice("insecure", &YES_NO)?.unwrap_or(false).into(),
        job: job(&mut keys)?,
        deliver: deliver(&mut keys, share)?,
        output: Output {
            dtype: keys.choice("output", &DTYPES)?.unwrap_or(Dtype::U8),
            layout: keys.choice("layout", &LAYOUTS)?.unwrap_or(Layout::Nhwc),
        },
        rank: RankConfig {
            rank: keys.whole("rank", 0)?.unwrap_or(0),
            world: keys.whole("world_size", 1)?.unwrap_or(1),
            last: keys.choice("last", &LASTS)?.unwrap_or(LastPolicy::Drop),
        },
        audit_percent: keys.whole("audit", 0)?.unwrap_or(DEFAULT_AUDIT_PERCENT),
        held_batches: keys.whole("held_batches", 1)?.unwrap_or(1),
        strategy: keys.parsed("strategy")?.unwrap_or(defaults.strategy),
        objective: keys.parsed("objective")?.unwrap_or(defaults.objective),
        on_bad: keys.parsed("on_bad")?.unwrap_or(defaults.on_bad),
        memory: match keys.whole::<u32>("memory", 1)? {
            Some(mebibytes) => MemoryBudget::Total(mebibytes as usize * (1 << 20)),
            None => MemoryBudget::Auto,
        },
        ..defaults
    };
    if config.audit_percent > 100 {
        return Err(format!("`audit` is {}; it is a percentage", config.audit_percent));
    }
    keys.end()?;
    Ok(config)
}

fn fields(value: Option<Value>) -> Result<Vec<String>, String> {
    let names = match value {
        None => return Ok(Vec::new()),
        Some(Value::String(name)) => return Ok(vec![name]),
        Some(Value::Array(names)) => names,
        Some(other) => return Err(format!("`fields` is {other}; give a list of names")),
    };
    let name = |name: Value| match name.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(format!("`fields` holds {name}; give a list of names")),
    };
    names.into_iter().map(name).collect()
}

fn tls(keys: &mut Keys) -> Result<Option<TlsFiles>, String> {
    let mut path = |key| Ok::<_, String>(keys.text(key)?.map(PathBuf::from));
    let [ca, cert, key] = [path("tls_ca")?, path("tls_cert")?, path("tls_key")?];
    TlsFiles::of(ca, cert, key)
}

fn job(keys: &mut Keys) -> Result<Option<JobTerms>, String> {
    let name = keys.text("job")?;
    let priority = keys.take("priority");
    let share = keys.whole::<u64>("share", 1)?;
    let priority = match priority {
        None => None,
        Some(value) => Some(value.as_i64().ok_or_else(|| {
            format!("`priority` is {value}; it must be a whole number from -4 to 4")
        })?),
    };
    JobTerms::given(name, priority, share)
}

/// Where rates are remembered from run to run for a user with this side index: next to it, in the
/// cache directory; nowhere where nothing is to be kept, or there is no such directory.
#[must_use]
pub fn rates_folder(side_index: SideIndexUse) -> Option<PathBuf> {
    let is_kept = side_index != SideIndexUse::Off;
    is_kept.then(user_cache).flatten().map(|cache| cache.join("rates"))
}

/// Percent of device batches of which the host makes rows again, where nobody says.
const DEFAULT_AUDIT_PERCENT: u8 = 1;

const YES_NO: [(bool, bool); 2] = [(true, true), (false, false)];
const DTYPES: [(&str, Dtype); 4] =
    [("u8", Dtype::U8), ("f32", Dtype::F32), ("f16", Dtype::F16), ("bf16", Dtype::Bf16)];
const LAYOUTS: [(&str, Layout); 2] = [("nhwc", Layout::Nhwc), ("nchw", Layout::Nchw)];
const LASTS: [(&str, LastPolicy); 4] = [
    ("drop", LastPolicy::Drop),
    ("pad", LastPolicy::Pad),
    ("wrap", LastPolicy::Wrap),
    ("even", LastPolicy::Even),
];
const READERS: [(&str, ReaderKind); 3] = [
    ("auto", ReaderKind::Auto),
    ("io_uring", ReaderKind::Uring),
    ("pread", ReaderKind::Pread),
];
const SIDE_INDEXES: [(&str, SideIndexUse); 3] = [
    ("auto", SideIndexUse::Auto),
    ("beside", SideIndexUse::Beside),
    ("off", SideIndexUse::Off),
];
const PAGE_CACHES: [(&str, PageCacheUse); 3] = [
    ("auto", PageCacheUse::Auto),
    ("through", PageCacheUse::Through),
    ("past", PageCacheUse::Past),
];

fn shuffles() -> [(Value, Shuffle); 3] {
    [
        (Value::Bool(true), Shuffle::Full),
        (Value::Bool(false), Shuffle::None),
        (Value::from("supplied"), Shuffle::Supplied),
    ]
}

/// A recipe by its name, its file, or itself.
fn recipe(value: Option<Value>) -> Result<Recipe, String> {
    let names = || Recipe::builtin_names().collect::<Vec<_>>().join(", ");
    let text = match value {
        None => {
            return Err(format!(
                "`recipe` is missing; the built-in ones are {}",
                names()
            ));
        }
        Some(Value::String(text)) => text,
        Some(value) => return Recipe::from_value(value).map_err(|e| one_line(&e)),
    };
    if let Some(recipe) = Recipe::builtin(&text) {
        return Ok(recipe);
    }
    let json = fs::read_to_string(&text).map_err(|e| {
        let meant = did_you_mean(&text, Recipe::builtin_names());
        let names = names();
        format!(
            "`recipe` is {text:?}: neither a built-in recipe ({names}) nor a file that can \
             be read ({e}){meant}"
        )
    })?;
    Recipe::from_json(&json).map_err(|e| format!("recipe {text}: {}", one_line(&e)))
}

fn workers(keys: &mut Keys, share: Share) -> Result<u32, String> {
    let is_auto = keys.0.get("workers").is_none_or(|value| value == "auto");
    if !is_auto {
        let workers = keys.whole("workers", 1)?.unwrap_or(1);
        return match workers {
            1..=4096 => Ok(workers),
            _ => Err(format!(
                "`workers` is {workers}; it must be at most 4096, or \"auto\""
            )),
        };
    }
    keys.take("workers");
    Ok(share.workers())
}

fn read(keys: &mut Keys, defaults: ReadConfig) -> Result<ReadConfig, String> {
    let kind = reader(keys)?;
    let side_index = keys.choice("side_index", &SIDE_INDEXES)?;
    let page_cache = keys.choice("page_cache", &PAGE_CACHES)?;
    let cache_size = cache_size(keys.take("cache_size"))?;
    let fetch = fetch(keys)?;
    Ok(ReadConfig {
        kind: kind.unwrap_or(defaults.kind),
        side_index: side_index.unwrap_or(defaults.side_index),
        page_cache: page_cache.unwrap_or(defaults.page_cache),
        cache_size: cache_size.unwrap_or(defaults.cache_size),
        fetch,
        ..defaults
    })
}

/// `uring` is what `io_uring` was called before the flag and the key had one set of words.
fn reader(keys: &mut Keys) -> Result<Option<ReaderKind>, String> {
    if keys.0.get("reader").is_some_and(|value| value == "uring") {
        keys.take("reader");
        return Ok(Some(ReaderKind::Uring));
    }
    keys.choice("reader", &READERS)
}

fn fetch(keys: &mut Keys) -> Result<FetchBounds, String> {
    let requests = keys.whole("fetch_requests", 1)?.map(FetchBounds::requests_of);
    let requests = requests.transpose().map_err(|why| format!("`fetch_requests`: {why}"));
    let reorder_bytes = match keys.take("fetch_reorder") {
        None => None,
        Some(Value::String(text)) => Some(FetchBounds::reorder_of(&text)),
        Some(other) => Some(FetchBounds::reorder_of(&other.to_string())),
    };
    let reorder_bytes =
        reorder_bytes.transpose().map_err(|why| format!("`fetch_reorder`: {why}"));
    let patience_s = keys.whole("fetch_patience", 1)?.map(FetchBounds::patience_of);
    let patience_s =
        patience_s.transpose().map_err(|why| format!("`fetch_patience`: {why}"))?;
    Ok(FetchBounds { requests: requests?, reorder_bytes: reorder_bytes?, patience_s })
}

fn cache_size(value: Option<Value>) -> Result<Option<CacheSize>, String> {
    let size = match value {
        None => return Ok(None),
        Some(Value::String(text)) => text.parse(),
        Some(other) => other.to_string().parse(),
    };
    size.map(Some).map_err(|why| format!("`cache_size`: {why}"))
}

fn deliver(keys: &mut Keys, share: Share) -> Result<Deliver, String> {
    let device = keys.text("device")?;
    let pin_memory = match keys.take("pin_memory") {
        None | Some(Value::Bool(false)) => None,
        Some(Value::Bool(true)) => Some("cuda".to_owned()),
        Some(Value::String(name)) => Some(name),
        Some(other) => {
            return Err(format!("`pin_memory` is {other}; give true or false"));
        }
    };
    Deliver::named(device.as_deref(), pin_memory.as_deref(), share.ranks.gpu())
}

fn devices(value: Option<Value>) -> Result<Vec<DeviceSpec>, String> {
    let specs = match value {
        None => Vec::new(),
        Some(Value::Array(specs)) => specs,
        Some(other) => return Err(format!("`csds` is {other}; give a list of texts")),
    };
    let device = |spec: Value| {
        let text =
            spec.as_str().ok_or("`csds` holds more than texts; give a list of them")?;
        text.parse().map_err(|e: RuntimeError| e.to_string())
    };
    specs.into_iter().map(device).collect()
}

/// The keys that have not been read yet, and those that a loader knows: all that were asked for.
/// `null` is the same as left out.
struct Keys(Map<String, Value>, Vec<&'static str>);

impl Keys {
    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.1.push(key);
        self.0.remove(key).filter(|value| !value.is_null())
    }

    fn text(&mut self, key: &'static str) -> Result<Option<String>, String> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("`{key}` is {other}; give a text")),
        }
    }

    fn whole<T: TryFrom<u64>>(
        &mut self,
        key: &'static str,
        least: u64,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let number = value.as_u64().filter(|number| *number >= least);
        match number.and_then(|number| T::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => {
                Err(format!("`{key}` is {value}; it must be a whole number from {least}"))
            }
        }
    }

    fn choice<N: Clone + Into<Value>, T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(N, T)],
    ) -> Result<Option<T>, String> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let names = || choices.iter().map(|(name, _)| -> Value { name.clone().into() });
        if let Some(nth) = names().position(|name| name == value) {
            return Ok(Some(choices[nth].1));
        }
        let names: Vec<_> = names().map(|name| name.to_string()).collect();
        let plain: Vec<_> = names.iter().map(|name| name.trim_matches('"')).collect();
        let meant = did_you_mean(value.as_str().unwrap_or_default(), plain);
        Err(format!("`{key}` is {value}; it must be one of {}{meant}", names.join(", ")))
    }

    fn parsed<T: FromStr<Err: ToString>>(
        &mut self,
        key: &'static str,
    ) -> Result<Option<T>, String> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let parsed = text.parse::<T>().map(Some);
        parsed.map_err(|e| format!("`{key}`: {}", ToString::to_string(&e)))
    }

    /// Every key has been read.
    fn end(self) -> Result<(), String> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(key) => {
                let meant = did_you_mean(key, self.1);
                Err(format!("`{key}` is not an option of a loader{meant}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bothends_csd::Insecure;

    use super::*;

    fn error(json: &str) -> String {
        options(json).unwrap_err().to_string()
    }

    #[test]
    fn two_keys_are_enough() {
        let config = options(r#"{"data": "/data", "recipe": "imagenet-eval"}"#).unwrap();
        assert_eq!((config.batch_size, config.seed, config.repeat), (64, 0, 1));
        assert_eq!(config.rank.last, LastPolicy::Drop);
        assert_eq!(config.shuffle, Shuffle::Full);
        assert!(config.workers >= 1);
    }

    #[test]
    fn every_key_of_the_table_is_read() {
        let recipe = Recipe::builtin("raw").unwrap().to_json();
        let json = format!(
            r#"{{"data": "d", "recipe": {recipe}, "batch_size": 7, "seed": 8, "limit": 9, "fields": ["a", "b:text"],
            "shuffle": false, "repeat": 2, "workers": 3, "csds": ["tcp://nas:7070"],
            "require_devices": true, "key_file": "k", "insecure": true,
            "job": "vit", "priority": -1, "share": 3,
            "tls_ca": "a", "tls_cert": "c", "tls_key": "p", "strategy": "relaxed", "objective": "energy", "output": "f32",
            "layout": "nchw", "rank": 1, "world_size": 2, "last": "wrap", "on_bad": "skip",
            "audit": 5, "memory": 64, "held_batches": 3, "reader": "pread",
            "side_index": "off", "page_cache": "past", "cache_size": "50G",
            "fetch_requests": 8, "fetch_reorder": "64M", "fetch_patience": 30, "cache": "/fast/cache", "device": "cuda:1", "pin_memory": true}}"#
        );
        let config = options(&json).unwrap();
        assert_eq!((config.batch_size, config.seed, config.limit), (7, 8, Some(9)));
        assert_eq!((config.repeat, config.workers, config.devices.len()), (2, 3, 1));
        assert_eq!(config.fields, ["a", "b:text"]);
        assert_eq!(config.shuffle, Shuffle::None);
        assert_eq!(config.output.dtype, Dtype::F32);
        assert_eq!((config.rank.rank, config.rank.world), (1, 2));
        assert_eq!((config.audit_percent, config.held_batches), (5, 3));
        assert_eq!(config.memory, MemoryBudget::Total(64 << 20));
        assert_eq!(config.read.kind, ReaderKind::Pread);
        let fetch = FetchBounds {
            requests: Some(8),
            reorder_bytes: Some(64 << 20),
            patience_s: Some(30),
        };
        assert_eq!(config.read.fetch, fetch);
        assert_eq!(config.deliver, Deliver::Gpu(1));
        assert_eq!(config.insecure, Insecure::Allowed);
        assert_eq!(config.tls.unwrap().cert, PathBuf::from("c"));
        let (name, priority, share) = ("vit".to_owned(), -1, 3);
        assert_eq!(config.job, Some(JobTerms { name, priority, share }));
        let documented = include_str!("options.rs").lines();
        let keys = documented.filter_map(|line| line.strip_prefix("//! | `"));
        let keys = keys.map(|line| line.split(" | ").next().unwrap());
        let names: Vec<_> = keys
            .flat_map(|names| names.split(", ").map(|n| n.replace('`', "")))
            .collect();
        assert!(names.len() > 20, "{names:?}");
        for name in names {
            assert!(json.contains(&format!("\"{name}\":")), "{name} is not in the test");
        }
    }

    #[test]
    fn io_uring_is_the_word_of_the_flag_and_uring_still_works() {
        for word in ["io_uring", "uring"] {
            let json = format!(r#"{{"data": "d", "recipe": "raw", "reader": "{word}"}}"#);
            assert_eq!(options(&json).unwrap().read.kind, ReaderKind::Uring);
        }
    }

    /// Nobody sees the text that it would be on one line.
    #[test]
    fn a_recipe_that_is_an_object_is_refused_without_a_column() {
        let said = error(r#"{"data": "d", "recipe": {"version": 1, "name": "x"}}"#);
        assert!(said.ends_with("name and ops: missing field `ops`"), "{said}");
    }

    #[test]
    fn a_wrong_option_is_named_with_what_is_expected() {
        let table = [
            ("[]", "not a JSON object"),
            ("{", "the options are not JSON"),
            (r#"{"recipe": "raw"}"#, "`data` is missing"),
            (r#"{"data": "d"}"#, "`recipe` is missing; the built-in ones are imagenet-"),
            (r#"{"data": "d", "recipe": "nope"}"#, "neither a built-in recipe ("),
            (r#"{"data": "d", "recipe": {"ops": 1}}"#, "ops"),
            (r#"{"data": 1, "recipe": "raw"}"#, "`data` is 1; give a text"),
            (
                r#"{"data": "d", "recipe": "raw", "fetch_requests": 5000}"#,
                "`fetch_requests`: 5000 requests cannot be in flight",
            ),
            (
                r#"{"data": "d", "recipe": "raw", "fetch_patience": 90000}"#,
                "`fetch_patience`: 90000 s is not a patience",
            ),
            (
                r#"{"data": "d", "recipe": "raw", "fetch_reorder": 5}"#,
                "`fetch_reorder`: `5` is not a size of a reorder buffer",
            ),
        ];
        for (json, part) in table {
            assert!(error(json).contains(part), "{json}: {}", error(json));
        }
        let table = [
            (r#""batch_size": 0"#, "`batch_size` is 0; it must be a whole number from 1"),
            (r#""batch_size": -1"#, "`batch_size` is -1"),
            (r#""batch_size": 4294967296"#, "`batch_size` is 4294967296"),
            (r#""batch_size": 1.5"#, "`batch_size` is 1.5"),
            (r#""workers": "many""#, "`workers` is \"many\""),
            (r#""workers": 4097"#, "at most 4096"),
            (
                r#""shuffle": 1"#,
                "`shuffle` is 1; it must be one of true, false, \"supplied\"",
            ),
            (
                r#""output": "f64""#,
                "it must be one of \"u8\", \"f32\", \"f16\", \"bf16\"",
            ),
            (r#""strategy": "best""#, "`strategy`: "),
            (r#""tls_ca": "a""#, "tls_cert and tls_key are missing; give all three"),
            (r#""insecure": 1"#, "`insecure` is 1; it must be one of true, false"),
            (r#""on_bad": "ignore""#, "use raise, skip, replace or zero"),
            (r#""csds": "tcp://nas:1""#, "give a list of texts"),
            (r#""device": "gpu""#, "`device` is \"gpu\"; it must be \"cpu\", \"cuda\""),
            (r#""pin_memory": 1"#, "`pin_memory` is 1; give true or false"),
            (r#""csds": [3]"#, "`csds` holds more than texts"),
            (r#""csds": ["x"]"#, "x"),
            (r#""csds": ["cuda:x"]"#, "or cuda:N; did you mean `cuda:0`?"),
            (r#""job": "a b""#, "the job's name is \"a b\"; give 1 to 64 letters"),
            (r#""job": "a", "priority": 5"#, "the job's priority is 5; give -4 to 4"),
            (r#""job": "a", "priority": "high""#, "`priority` is \"high\"; it must be"),
            (r#""job": "a", "share": 101"#, "the job's share is 101; give 1 to 100"),
            (r#""share": 2"#, "a share or priority is of a job; give the job a name"),
            (r#""audit": 101"#, "`audit` is 101; it is a percentage"),
            (
                r#""reader": "mmap""#,
                "it must be one of \"auto\", \"io_uring\", \"pread\"",
            ),
            (r#""bacth_size": 3"#, "`bacth_size` is not an option of a loader"),
        ];
        for (key, part) in table {
            let json = format!(r#"{{"data": "d", "recipe": "raw", {key}}}"#);
            assert!(error(&json).contains(part), "{json}: {}", error(&json));
        }
    }
}
