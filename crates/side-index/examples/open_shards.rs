//! How long shards take to open: walked through from the page cache, and from what was kept. CPU time, in
//! milliseconds; the least of several. Give it one shard: of several, other threads walk through most, whose
//! time is not counted.
//!
//! ```sh
//! cargo run --release -p bothends-side-index --example open_shards -- DATA
//! ```
//! `scripts/measure-open-shards` makes data of a million members and runs it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement: a panic is the report, and the result is printed"
)]

use std::path::Path;

use bothends_dataset::{Found, Storage, Version};
use bothends_io::Folder;
use bothends_side_index::Cache;

const TIMES: usize = 5;

fn main() {
    let data = std::env::args_os().nth(1).expect("the folder or file of shards");
    let (folder, target) = Folder::around(Path::new(&data)).unwrap();
    let root = std::env::temp_dir().join(format!("open-shards-{}", std::process::id()));
    let cache = || Some(Cache { root: root.clone(), limit_bytes: 4 << 30 });
    let versions: Vec<Version> = folder.versions(&target).unwrap().unwrap();
    let n_bytes: u64 = versions.iter().map(|version| version.len).sum();
    let (walk_ms, walked) =
        least(|| bothends_side_index::find(&folder, &target, None).unwrap());
    bothends_side_index::find(&folder, &target, cache()).unwrap();
    let (kept_ms, kept) =
        least(|| bothends_side_index::find(&folder, &target, cache()).unwrap());
    assert!(walked.table == kept.table, "another table was kept");
    println!(
        "{} samples, {:.1} GB: walked in {walk_ms:.0} ms ({:.1} GB/s), opened again in {kept_ms:.0} ms",
        walked.table.n_samples(),
        n_bytes as f64 / 1e9,
        n_bytes as f64 / 1e6 / walk_ms,
    );
    std::fs::remove_dir_all(root).unwrap();
}

/// CPU time of this thread in milliseconds, as Linux counts it.
fn cpu_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e6
}

fn least(mut open: impl FnMut() -> Found) -> (f64, Found) {
    let mut all: Vec<(f64, Found)> = (0..TIMES)
        .map(|_| {
            let began = cpu_ms();
            let found = open();
            (cpu_ms() - began, found)
        })
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.swap_remove(0)
}
