//! What a run was told, as it stands in the result's `config`.

use std::path::PathBuf;
use std::time::Duration;

use bothends_figures::Settings;
use bothends_io::ReaderKind;
use serde_json::{Value, json};

use crate::config::cache::CacheSize;
use crate::config::drive::{CheckpointEvery, DriveConfig};
use crate::config::run::{MemoryBudget, PageCacheUse, RunConfig, SideIndexUse};
use crate::read::remote::without_secrets;

const MIB: usize = 1 << 20;

/// Every setting under its flag's name: the result's `config`.
#[must_use]
pub fn settings(run: &RunConfig, how: &DriveConfig) -> Settings {
    let energy: Vec<String> = how.energy.meters.iter().map(ToString::to_string).collect();
    let others = [
        ("data", json!(without_secrets(&run.data).display().to_string())),
        ("recipe", json!(run.recipe.name())),
        ("recipe_hash", json!(format!("{:032x}", run.recipe.hash()))),
        ("epochs", json!(how.epochs)),
        ("seed", json!(run.seed)),
        ("shuffle", json!(run.shuffle.to_string())),
        ("limit", json!(run.limit)),
        ("repeat", json!(run.repeat)),
        ("workers", json!(run.workers)),
        ("strategy", json!(run.strategy.name())),
        ("objective", json!(run.objective.to_string())),
        ("accelerator", json!(how.accelerator.name())),
        ("output", json!(run.output.dtype)),
        ("layout", json!(run.output.layout)),
        ("rank", json!(run.rank.rank)),
        ("world", json!(run.rank.world)),
        ("last", json!(run.rank.last.to_string())),
        ("on_bad", json!(run.on_bad.name())),
        ("audit_percent", json!(run.audit_percent)),
        ("energy", json!(energy)),
        ("energy_profile", json!(how.energy.profile.called())),
    ];
    let mix = run.mix.as_ref().map(|mix| ("mix", mix.how()));
    let fields = (!run.fields.is_empty()).then(|| ("fields", json!(run.fields)));
    let others = others.into_iter().chain(mix).chain(fields);
    let others = others.chain(of_host(run)).chain(of_drive(how));
    Settings {
        batch_size: Some(run.batch_size),
        csd: run.devices.iter().map(|device| device.text().to_owned()).collect(),
        accelerator_images_per_s: how.accelerator.samples_per_s(),
        others: others.map(|(name, value)| (name.to_owned(), value)).collect(),
    }
}

/// How samples are read and held. Bytes do not depend on it, and speed does.
fn of_host(run: &RunConfig) -> [(&'static str, Value); 13] {
    let (read, job) = (&run.read, run.job.as_ref());
    let reader = match read.kind {
        ReaderKind::Auto => "auto",
        ReaderKind::Uring => "io_uring",
        ReaderKind::Pread => "pread",
    };
    let side_index = match read.side_index {
        SideIndexUse::Auto => "auto",
        SideIndexUse::Beside => "beside",
        SideIndexUse::Off => "off",
    };
    let page_cache = match read.page_cache {
        PageCacheUse::Auto => "auto",
        PageCacheUse::Through => "through",
        PageCacheUse::Past => "past",
    };
    let cache_size = match read.cache_size {
        CacheSize::Auto => json!("auto"),
        CacheSize::Off => json!("off"),
        CacheSize::Bytes(bytes) => json!(bytes),
    };
    let memory = match run.memory {
        MemoryBudget::Auto => json!("auto"),
        MemoryBudget::Total(bytes) => json!(bytes / MIB),
        // No flag of ours says so.
        MemoryBudget::Slots(bytes) => json!(format!("slots of {bytes} bytes")),
    };
    [
        ("memory", memory),
        ("reader", json!(reader)),
        ("side_index", json!(side_index)),
        ("page_cache", json!(page_cache)),
        ("cache", json!(run.cache.as_ref().map(|path| path.display().to_string()))),
        ("cache_size", cache_size),
        ("fetch_requests", json!(read.fetch.requests)),
        ("fetch_reorder", json!(read.fetch.reorder_bytes)),
        ("fetch_patience", json!(read.fetch.patience().as_secs())),
        ("require_devices", json!(run.require_devices)),
        ("job", json!(job.map(|job| &job.name))),
        ("priority", json!(job.map(|job| job.priority))),
        ("share", json!(job.map(|job| job.share))),
    ]
}

/// What the run does beyond its epochs.
fn of_drive(how: &DriveConfig) -> [(&'static str, Value); 7] {
    let path =
        |path: &Option<PathBuf>| json!(path.as_ref().map(|it| it.display().to_string()));
    let seconds = |time: Option<Duration>| json!(time.map(|time| time.as_secs_f64()));
    let every = how.checkpoint_every.map(|every| match every {
        CheckpointEvery::Batches(n) => json!(n),
        CheckpointEvery::Time(time) => json!(format!("{}s", time.as_secs())),
    });
    [
        ("digest", json!(how.digest)),
        ("measure_alone", seconds(how.measure)),
        ("energy_idle", seconds(how.energy.idle)),
        ("stop_after", json!(how.stop_after)),
        ("checkpoint", path(&how.checkpoint)),
        ("checkpoint_every", json!(every)),
        ("resume", path(&how.resume)),
    ]
}
