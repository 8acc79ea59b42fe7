//! A proxy that flips bits, cuts, swaps, replays and inserts costs an epoch time and nothing else:
//! every run ends, with the content of the host alone, and what went wrong is named.
//!
//! Here are a few runs over all kinds of messages; `scripts/torture-wire` makes as many as it is told
//! to and prints what happened in them. The device is the agent's server in this process, behind a
//! Unix socket; it lacks a third of the files, so that some of its rows are bad and some of its jobs
//! fail.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bothends_agent::{FileStore, NoCosts, Server, ServerConfig};
use bothends_core::ids::SampleId;
use bothends_csd::conformance::{
    BAD_SAMPLE, BUSY_RECIPE, EchoServe, REFUSED_RECIPE, session,
};
use bothends_csd::listen::{Terms, serve_connection};
use bothends_csd::stream::Stream;
use bothends_csd::{CsdError, Inquiry, RecordDigest, Security, Session, Transport as _};
use bothends_runtime::{BackResult, EpochResult};
use bothends_tests::Setup;
use bothends_tests::proxy::{Fault, KINDS, Plan, Proxy};

const DONE: u8 = 10;
const FAILED: u8 = 11;
const REVOKE: u8 = 12;
const ASK_STATS: u8 = 13;
const STATS: u8 = 14;

/// Kinds that an epoch does not have.
const OF_NO_EPOCH: [u8; 4] = [4, 15, 16, 17];

/// Runs of the test; the script makes more.
const N_RUNS: u64 = 60;
const RUNS: &str = "BOTHENDS_TORTURE_RUNS";

/// Files, and those of them that the device has: not every third.
const N_FILES: u32 = 36;
const BATCH_SIZE: u32 = 2;

/// No run takes longer; what does, hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// How a run with a spoiled message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// The message never came.
    NotStruck,
    /// The device went on as if nothing were: the message was of no use any more.
    Unharmed,
    /// A batch came to nothing, which the epoch's report names.
    JobLost,
    /// The device was lost, which the epoch's report names.
    LinkLost,
    /// The device was not taken at all, and the error says why.
    NotTaken,
}

/// Small images in two folders, the host's and the device's.
fn images(folder: &Path) -> Result<()> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ops");
    let kinds = ["420-48x64.jpg", "422-48x64.jpg", "444-48x64.jpg", "grey-48x64.jpg"];
    for number in 0..N_FILES {
        let source = fixtures.join(kinds[number as usize % kinds.len()]);
        for root in ["host", "device"] {
            // The first file is looked for when a session is opened.
            if root == "device" && number % 3 == 2 {
                continue;
            }
            let class = folder.join(root).join(format!("class-{}", number / 12));
            std::fs::create_dir_all(&class)?;
            std::fs::copy(&source, class.join(format!("{number:03}.jpg")))?;
        }
    }
    Ok(())
}

fn setup(folder: &Path, seed: u64) -> Setup {
    // With one strategy the device makes what it can; with the other both begin at their ends.
    let strategy = if seed.is_multiple_of(4) { "ordered" } else { "csd" };
    Setup {
        recipe: "cifar10-train".to_owned(),
        seed: seed % 5,
        batch_size: BATCH_SIZE,
        strategy,
        ..Setup::new(&folder.join("host"))
    }
}

/// The device behind the proxy, on a thread.
fn serve(socket: UnixStream, root: &Path, stop: &Arc<AtomicBool>) -> Result<()> {
    let config = ServerConfig {
        name: "proxied".to_owned(),
        emulated: false,
        n_workers: 1,
        n_slots: 3,
    };
    let mut server = Server::start(config, FileStore::new(root)?, NoCosts)?;
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        // How it ended is for the host to say.
        let terms = Terms { security: &Security::default(), stop: &stop };
        drop(serve_connection(socket, &mut server, terms));
    });
    Ok(())
}

/// One short epoch with one spoiled message.
fn run(folder: &Path, plan: Plan) -> Result<(EpochResult, End)> {
    let stop = Arc::new(AtomicBool::new(false));
    let (host, towards_host) = UnixStream::pair()?;
    let (device, towards_device) = UnixStream::pair()?;
    serve(device, &folder.join("device"), &stop)?;
    let proxy = Proxy::between(&towards_host, &towards_device, plan)?;
    let stream = Stream::over_socket(
        host.into(),
        "proxied".to_owned(),
        Security::default(),
        DEADLINE / 6,
    )?;
    let setup = setup(folder, plan.seed);
    let (epoch, refused) = setup.with_device(Box::new(stream))?;
    let struck = proxy.struck();
    proxy.join();
    stop.store(true, Ordering::Relaxed);
    let back = epoch.back.first();
    let failure = back.and_then(|back| back.failure.as_deref()).unwrap_or_default();
    let end = match (&refused, struck) {
        (Some(why), _) if why.is_empty() => bail!("not taken, and nobody says why"),
        (Some(_), _) => End::NotTaken,
        (None, false) => End::NotStruck,
        (None, true) if is_link(failure) => End::LinkLost,
        (None, true) if failure.contains("checksum") => End::JobLost,
        (None, true) => End::Unharmed,
    };
    Ok((epoch, end))
}

/// Whether the epoch's report says that the device itself was lost.
fn is_link(failure: &str) -> bool {
    [
        "lost the device",
        "do not follow this protocol",
        "did not answer",
        "protocol version",
    ]
    .iter()
    .any(|words| failure.contains(words))
}

/// The same with a deadline, held against the host alone.
fn survives(folder: &Path, alone: &EpochResult, plan: Plan) -> Result<End> {
    let (tell, told) = mpsc::channel();
    let at = folder.to_owned();
    thread::spawn(move || drop(tell.send(run(&at, plan))));
    let (epoch, end) = told.recv_timeout(DEADLINE).context("it hangs")??;
    ensure!(epoch.content_digest == alone.content_digest, "another content");
    if epoch.strategy == "ordered" {
        ensure!(epoch.stream_digest == alone.stream_digest, "another stream");
    }
    ensure!(epoch.batches == alone.batches, "{} batches", epoch.batches);
    let n_lost = epoch.back.first().map_or(0, |back| back.lost);
    // A job that lacks its files is lost, too, and named: so this says more than `end`.
    let is_named = epoch.back.iter().all(|back| back.lost == 0 || back.failure.is_some());
    // Nobody looks at what comes when the epoch is over: an answer to a batch that the host has
    // made itself meanwhile, and what is said to end with.
    let is_rescued = |back: &BackResult| epoch.rescued + back.late + back.wasted > 0;
    let may_be_late = match plan.kind {
        DONE | FAILED => epoch.back.iter().any(is_rescued),
        kind => [REVOKE, ASK_STATS, STATS].contains(&kind),
    };
    let is_unnoticed = plan.fault.is_fatal() && end == End::Unharmed;
    ensure!(may_be_late || !is_unnoticed, "nobody noticed: {:?}", epoch.back);
    ensure!(is_named, "{n_lost} batches are lost and nobody says why");
    Ok(end)
}

/// A conversation that has what no epoch has: a refusal, a busy device, records that are asked
/// about. An answer is the right one, or an error.
fn converse(plan: Plan) -> Result<End> {
    let stop = Arc::new(AtomicBool::new(false));
    let (host, towards_host) = UnixStream::pair()?;
    let (device, towards_device) = UnixStream::pair()?;
    let stopped = Arc::clone(&stop);
    thread::spawn(move || {
        let terms = Terms { security: &Security::default(), stop: &stopped };
        drop(serve_connection(device, &mut EchoServe::default(), terms));
    });
    let proxy = Proxy::between(&towards_host, &towards_device, plan)?;
    let mut stream = Stream::over_socket(
        host.into(),
        "proxied".to_owned(),
        Security::default(),
        DEADLINE / 6,
    )?;
    let mut errors = Vec::new();
    let mut note = |error: CsdError| errors.push(error.to_string());
    stream.hello().map(drop).unwrap_or_else(&mut note);
    for recipe in [REFUSED_RECIPE, BUSY_RECIPE] {
        let session = Session { recipe: recipe.to_owned(), ..session(4) };
        let opened = stream.open(&session);
        opened.expect_err("a session that no device opens");
    }
    match stream.open(&session(4)) {
        Err(error) => note(error),
        Ok(()) => {
            let samples = vec![SampleId(7), BAD_SAMPLE, SampleId(3)];
            match stream.attest(&Inquiry { seed: plan.seed, samples }) {
                Err(error) => note(error),
                Ok(records) => {
                    let of =
                        |id: u64| Some(RecordDigest::of(&id.to_le_bytes(), plan.seed));
                    ensure!(records == Some(vec![of(7), None, of(3)]), "wrong digests");
                }
            }
        }
    }
    let struck = proxy.struck();
    drop(stream);
    stop.store(true, Ordering::Relaxed);
    proxy.join();
    let is_unnoticed = plan.fault.is_fatal() && errors.is_empty();
    ensure!(!struck || !is_unnoticed, "nobody noticed");
    Ok(match (struck, errors.is_empty()) {
        (false, _) => End::NotStruck,
        (true, true) => End::Unharmed,
        (true, false) => End::LinkLost,
    })
}

fn plan(number: u64) -> Plan {
    let pairs: Vec<(u8, Fault)> = (1..18)
        .flat_map(|kind| Fault::ALL.map(|fault| (kind, fault)))
        .filter(|(kind, fault)| has_place(*kind, *fault))
        .collect();
    let n = pairs.len() as u64;
    // A stride without a factor in common visits all of them, kinds in turn.
    let (kind, fault) = pairs[usize::try_from(number * 37 % n).unwrap()];
    let skip = u32::try_from(number / n).unwrap();
    let skip = match kind {
        9 | 10 => skip * 3 % 11,
        11 | 13 | 14 => skip % 2,
        // These come once.
        _ => 0,
    };
    Plan { kind, skip, fault, seed: number }
}

/// Whether a message of that kind has what is spoiled.
fn has_place(kind: u8, fault: Fault) -> bool {
    match fault {
        Fault::FlipPayload => kind == 10,
        Fault::FlipBody => ![3, 5, 8, 12, 13].contains(&kind),
        Fault::Foreign => [8, 9, 10, 11, 12, 16, 17].contains(&kind),
        Fault::FlipHeader
        | Fault::Cut
        | Fault::Swap
        | Fault::Replay
        | Fault::ReplayLate
        | Fault::Noise => true,
    }
}

#[test]
fn a_spoiled_message_never_spoils_a_stream() -> Result<()> {
    let n_runs = match std::env::var(RUNS) {
        Ok(text) => text.parse()?,
        Err(_) => N_RUNS,
    };
    let folder = tempfile::tempdir()?;
    images(folder.path())?;
    let alone =
        (0..20).map(|seed| Setup { strategy: "cpu", ..setup(folder.path(), seed) }.run());
    let alone = alone.collect::<Result<Vec<_>>>()?;
    let mut ends: BTreeMap<(u8, End), u32> = BTreeMap::new();
    for number in 0..n_runs {
        let plan = plan(number);
        let alone = &alone[usize::try_from(number % 20)?];
        let end = match OF_NO_EPOCH.contains(&plan.kind) {
            true => converse(plan),
            false => survives(folder.path(), alone, plan),
        };
        let end = end.with_context(|| format!("run {number}, {plan:?}"))?;
        *ends.entry((plan.kind, end)).or_default() += 1;
    }
    for ((kind, end), n) in &ends {
        eprintln!("{:9} {:9} {n}", KINDS[usize::from(*kind)], format!("{end:?}"));
    }
    let n_struck: u32 =
        ends.iter().filter(|((_, end), _)| *end != End::NotStruck).map(|(_, n)| n).sum();
    ensure!(
        u64::from(n_struck) * 2 > n_runs,
        "only {n_struck} of {n_runs} messages came"
    );
    Ok(())
}
