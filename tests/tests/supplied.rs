//! Orders and samples that the caller supplies: a sampler's order is followed to the batch,
//! resumed and made by devices like the keyed one; listed samples are those of a folder.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bothends_core::digest::sample_digest;
use bothends_core::order::{Order, OrderConfig, Repeats};
use bothends_runtime::{
    Deal, Loader, Polled, Records, Redecode, RunConfig, RuntimeError, Supplied,
    SuppliedFile, Unread, options,
};
use bothends_tests::{generated, programs};
use serde_json::{Value, json};

/// Samples of the data set.
const N: u64 = 23;
/// No batch takes longer.
const DEADLINE: Duration = Duration::from_secs(60);
/// Weighted: some come again, some never; batches are of all lengths.
const ORDER: [i64; 17] = [4, 4, 9, 22, 0, 4, 17, 3, 3, 8, 21, 20, 19, 0, 1, 2, 4];
const ENDS: [u64; 7] = [3, 4, 7, 10, 13, 14, 17];

fn config(data: PathBuf, otherwise: &Value) -> Result<RunConfig> {
    let mut all = json!({
        "data": data, "recipe": "imagenet-train", "batch_size": 3, "seed": 5, "limit": N,
        "workers": 2, "shuffle": "supplied", "side_index": "off",
    });
    let keys = all.as_object_mut().context("an object")?;
    keys.extend(otherwise.as_object().context("an object")?.clone());
    Ok(options(&all.to_string())?)
}

fn open(otherwise: &Value) -> Result<Loader> {
    Ok(Loader::open(config(generated()?, otherwise)?)?)
}

/// A batch: each row's sample, with a digest of what it holds.
type Rows = Vec<(u64, u128)>;

/// What a batch was, or `None` at the end.
fn next(deal: &Deal) -> Result<Option<Rows>> {
    let batch = match deal.poll(0, DEADLINE)? {
        Polled::Batch(batch) => batch,
        Polled::End => return Ok(None),
        Polled::Pending => bail!("no batch in {DEADLINE:?}"),
    };
    let rows = batch.rows().iter().enumerate();
    let digest = |(i, row): (usize, &bothends_runtime::Row)| {
        row.sample.map(|id| (id.0, sample_digest(id, row.label, batch.sample(i))))
    };
    Ok(Some(rows.filter_map(digest).collect()))
}

fn rest(deal: &Deal) -> Result<Vec<Rows>> {
    std::iter::from_fn(|| next(deal).transpose()).collect()
}

fn begin(loader: &mut Loader, order: &[i64], ends: &[u64]) -> Result<Arc<Deal>> {
    let repeats = Repeats::SameOnRanks;
    let config = OrderConfig { n_records: 0, rank: 0, world: 1, repeats, skip: 0 };
    let order = loader.order(config, order, ends.to_vec())?;
    Ok(loader.begin_order(Arc::new(order))?)
}

fn whole(otherwise: &Value) -> Result<Vec<Rows>> {
    rest(&*begin(&mut open(otherwise)?, &ORDER, &ENDS)?)
}

/// The orders of two epochs, of which the second is the first backwards.
fn two_orders(loader: &Loader) -> Result<[Arc<Order>; 2]> {
    let repeats = Repeats::SameOnRanks;
    let config = OrderConfig { n_records: 0, rank: 0, world: 1, repeats, skip: 0 };
    let back: Vec<i64> = ORDER.iter().rev().copied().collect();
    let order = |records: &[i64]| loader.order(config, records, ENDS.to_vec());
    Ok([Arc::new(order(&ORDER)?), Arc::new(order(&back)?)])
}

#[test]
fn an_order_that_is_named_early_is_made_ahead() -> Result<()> {
    let mut fresh = open(&json!({}))?;
    let [first, second] = two_orders(&fresh)?;
    fresh.set_epoch(1);
    let of_second = rest(&*fresh.begin_order(Arc::clone(&second))?)?;
    let mut loader = open(&json!({}))?;
    let deadline = Instant::now() + DEADLINE;
    loop {
        loader.set_epoch(0);
        rest(&*loader.begin_order_before(Arc::clone(&first), Arc::clone(&second))?)?;
        // A consumer that is slower than the loader.
        std::thread::sleep(Duration::from_millis(50));
        let deal = loader.begin_order(Arc::clone(&second))?;
        let Polled::Batch(batch) = deal.poll(0, Duration::ZERO)? else {
            ensure!(Instant::now() < deadline, "no order was begun ahead");
            continue;
        };
        let ids: Vec<_> = batch.rows().iter().filter_map(|row| row.sample).collect();
        ensure!(ids.iter().map(|id| id.0).eq(of_second[0].iter().map(|(id, _)| *id)));
        ensure!(rest(&deal)? == of_second[1..], "another stream");
        break;
    }
    // Another order than was named.
    loader.set_epoch(0);
    rest(&*loader.begin_order_before(Arc::clone(&first), second)?)?;
    fresh.set_epoch(1);
    let of_first = rest(&*fresh.begin_order(Arc::clone(&first))?)?;
    ensure!(rest(&*loader.begin_order(first)?)? == of_first);
    Ok(())
}

#[test]
fn an_order_is_followed_to_the_batch() -> Result<()> {
    let batches = whole(&json!({}))?;
    let mut place = 0;
    let mut digests = Vec::new();
    for (batch, end) in batches.iter().zip(ENDS) {
        let end = usize::try_from(end)?;
        let records: Vec<_> =
            batch.iter().map(|(id, _)| i64::try_from(id % N).unwrap()).collect();
        ensure!(records == ORDER[place..end], "{records:?}");
        digests.extend(batch.iter().map(|(_, digest)| *digest));
        place = end;
    }
    ensure!(place == ORDER.len());
    // Repetitions are other crops.
    digests.sort_unstable();
    digests.dedup();
    ensure!(digests.len() == ORDER.len());
    Ok(())
}

#[test]
fn devices_and_workers_do_not_change_it() -> Result<()> {
    let alone = whole(&json!({ "workers": 1 }))?;
    programs::program("firmware-sim")?;
    let device = json!({ "csds": ["sim:ideal,rate=2000"], "strategy": "ordered" });
    ensure!(whole(&device)? == alone);
    let relaxed = json!({ "csds": ["sim:ideal,rate=0.5x"], "strategy": "relaxed" });
    let mut batches = whole(&relaxed)?;
    let mut expected = alone;
    batches.sort();
    expected.sort();
    ensure!(batches == expected);
    Ok(())
}

#[test]
fn it_is_resumed_at_any_batch_and_a_state_of_another_order_is_refused() -> Result<()> {
    let whole = whole(&json!({}))?;
    for n_taken in 0..whole.len() {
        let mut loader = open(&json!({}))?;
        let deal = begin(&mut loader, &ORDER, &ENDS)?;
        for _ in 0..n_taken {
            next(&deal)?.context("a batch")?;
        }
        let state = loader.state()?;
        let mut other = open(&json!({}))?;
        other.load_state(&state)?;
        ensure!(other.state()? == state, "what was loaded and not gone on from");
        let deal = begin(&mut other, &ORDER, &ENDS)?;
        ensure!(rest(&deal)? == whole[n_taken..], "after {n_taken} batches");
        if n_taken == 0 {
            continue;
        }
        let mut swapped = ORDER;
        swapped.swap(15, 16);
        other.load_state(&state)?;
        let refused = begin(&mut other, &swapped, &ENDS).unwrap_err().to_string();
        ensure!(refused.contains("the sampler gives a different order"), "{refused}");
    }
    Ok(())
}

#[test]
fn a_loader_of_supplied_orders_has_none_of_its_own() -> Result<()> {
    let mut loader = open(&json!({}))?;
    let line = loader.begin(1).unwrap_err().to_string();
    ensure!(line.contains("follows orders that are supplied"), "{line}");
    let line = begin(&mut loader, &[23], &[1]).unwrap_err().to_string();
    ensure!(line.contains("sample 23 at position 0"), "{line}");
    Ok(())
}

/// The folder's files in the order of their names, by paths below it.
fn files() -> Result<Vec<String>> {
    let root = generated()?;
    let mut files = Vec::new();
    for class in std::fs::read_dir(&root)? {
        let class = class?;
        let name = class.file_name().into_string().unwrap();
        if !class.path().is_dir() || name.starts_with('.') {
            continue;
        }
        for file in std::fs::read_dir(class.path())? {
            let file = file?.file_name().into_string().unwrap();
            files.push(format!("{name}/{file}"));
        }
    }
    files.sort();
    files.truncate(usize::try_from(N)?);
    Ok(files)
}

fn supplied(supplied: Supplied, otherwise: &Value) -> Result<Loader> {
    let config = config(generated()?, otherwise)?;
    Ok(Loader::open(RunConfig { supplied: Some(supplied), ..config })?)
}

fn listed() -> Result<Supplied> {
    let files = files()?;
    let file = |path| SuppliedFile { path, extent: None, label: 0 };
    Ok(Supplied::files(&generated()?, files.iter().map(|path| file(path)))?)
}

/// Gives the bytes of files, and of one none.
#[derive(Debug)]
struct OfFiles {
    files: Vec<PathBuf>,
    bad: Option<u64>,
}

impl Records for OfFiles {
    fn read(&self, sample: u64) -> Result<Vec<u8>, Unread> {
        if self.bad == Some(sample) {
            return Err(Unread::new("there are no bytes", None));
        }
        Ok(std::fs::read(&self.files[usize::try_from(sample).unwrap()])?)
    }
}

fn fetched(bad: Option<u64>) -> Result<Supplied> {
    let root = generated()?;
    let files: Vec<_> = files()?.iter().map(|file| root.join(file)).collect();
    let labels = vec![0; files.len()];
    Ok(Supplied::records("files", &labels, Arc::new(OfFiles { files, bad }))?)
}

#[test]
fn listed_files_and_fetched_bytes_are_the_same_samples() -> Result<()> {
    let (files, bytes) = (listed()?, fetched(None)?);
    for recipe in ["imagenet-train", "imagenet-eval"] {
        let otherwise = json!({ "recipe": recipe });
        let mut of_files = supplied(files.clone(), &otherwise)?;
        let mut of_bytes = supplied(bytes.clone(), &otherwise)?;
        let expected = rest(&*begin(&mut of_files, &ORDER, &ENDS)?)?;
        ensure!(rest(&*begin(&mut of_bytes, &ORDER, &ENDS)?)? == expected, "{recipe}");
    }
    programs::program("firmware-sim")?;
    let device = json!({ "csds": ["sim:ideal,rate=2000"] });
    let mut loader = supplied(files, &device)?;
    let alone = rest(&*begin(&mut supplied(listed()?, &json!({}))?, &ORDER, &ENDS)?)?;
    ensure!(rest(&*begin(&mut loader, &ORDER, &ENDS)?)? == alone);
    let refused = supplied(bytes, &device).unwrap_err().to_string();
    ensure!(refused.contains("cannot read samples that the caller gives"), "{refused}");
    Ok(())
}

#[test]
fn a_fetched_sample_without_bytes_is_a_bad_one() -> Result<()> {
    let mut loader = supplied(fetched(Some(9))?, &json!({}))?;
    let deal = begin(&mut loader, &ORDER, &ENDS)?;
    let error = rest(&deal).unwrap_err();
    let error = error.downcast_ref::<RuntimeError>().context("ours")?.to_string();
    ensure!(error.contains("sample 9 (sample 9 of files)"), "{error}");
    ensure!(error.contains("there are no bytes"), "{error}");
    let mut loader = supplied(fetched(Some(9))?, &json!({ "on_bad": "skip" }))?;
    let batches = rest(&*begin(&mut loader, &ORDER, &ENDS)?)?;
    ensure!(batches.iter().map(Vec::len).sum::<usize>() == ORDER.len() - 1);
    Ok(())
}

/// Files whose second half is missing, and who knows them whole.
#[derive(Debug)]
struct Halves(OfFiles);

impl Records for Halves {
    fn read(&self, sample: u64) -> Result<Vec<u8>, Unread> {
        let mut bytes = self.0.read(sample)?;
        bytes.truncate(bytes.len() / 2);
        Ok(bytes)
    }
}

impl Redecode for Halves {
    fn redecode(&self, record: &[u8]) -> Result<Vec<u8>, String> {
        let mut files = (0..N).map(|sample| self.0.read(sample).unwrap());
        files.find(|file| file.starts_with(record)).ok_or("it is no half".to_owned())
    }
}

#[test]
fn what_is_refused_is_decoded_by_the_callers_decoder_and_counted() -> Result<()> {
    let expected = whole_of(&listed()?)?;
    let root = generated()?;
    let files = files()?.iter().map(|file| root.join(file)).collect();
    let halves = Arc::new(Halves(OfFiles { files, bad: None }));
    let labels = vec![0; usize::try_from(N)?];
    let given = Supplied::records("halves", &labels, Arc::clone(&halves) as _)?;
    let config = RunConfig {
        supplied: Some(given),
        redecoder: Some(halves),
        ..config(root, &json!({}))?
    };
    let mut loader = Loader::open(config.clone())?;
    ensure!(rest(&*begin(&mut loader, &ORDER, &ENDS)?)? == expected);
    let stats = loader.stats();
    // Repetitions are samples of their own.
    ensure!(stats.redecoded.len() == ORDER.len() && stats.skipped.is_empty());
    ensure!(stats.redecoded[0].why.contains("damaged"), "{:?}", stats.redecoded[0]);
    let mut refused = Loader::open(RunConfig { redecoder: None, ..config })?;
    ensure!(rest(&*begin(&mut refused, &ORDER, &ENDS)?).is_err(), "nobody decodes them");
    Ok(())
}

fn whole_of(given: &Supplied) -> Result<Vec<Rows>> {
    rest(&*begin(&mut supplied(given.clone(), &json!({}))?, &ORDER, &ENDS)?)
}

#[test]
fn a_listed_file_that_is_not_there_is_named() -> Result<()> {
    let file = SuppliedFile { path: "a/gone.jpg", extent: None, label: 0 };
    let error = Supplied::files(&generated()?, std::iter::once(file)).unwrap_err();
    let gone = generated()?.join("a/gone.jpg");
    let line = format!("cannot open `{}`", gone.display());
    ensure!(error.to_string().contains(&line), "{error}");
    let up = SuppliedFile { path: "../x.jpg", extent: Some((0, 9)), label: 0 };
    let error = Supplied::files(&generated()?, std::iter::once(up)).unwrap_err();
    ensure!(error.to_string().contains("leads up"), "{error}");
    Ok(())
}
