//! What a byte costs on its way from a device to a host, by kind of address.
//!
//! The device sends batches that lie ready in its slots, through the serving loop and the transport that
//! runs use, to a host on the same machine. Measured is the CPU time of the thread on each side, system calls
//! and checksums included: the bytes of all batches by that time are the rate of one core.
//! `scripts/measure-channel` runs this.

#![allow(clippy::print_stdout, reason = "this is a program")]

use std::collections::VecDeque;
use std::error::Error;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_csd::job::RecordDigest;
use bothends_csd::key::Key;
use bothends_csd::listen::{Listener, Terms, serve_connection};
use bothends_csd::security::{Insecure, Security, TlsFiles};
use bothends_csd::stream::Stream;
use bothends_csd::{
    Address, Capabilities, Declined, DeviceStats, Finished, Inquiry, Job, JobId,
    PROTOCOL_VERSION, Product, Refused, Serve, Session, Transport, conformance,
};
use bothends_slots::{HostSlot, Polled, Producer, Ring, RingConfig};
use nix::time::{ClockId, clock_gettime};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use twox_hash::XxHash3_64;

/// A batch of 64 images of 224 × 224 in f32: 38.5 MB.
const BATCH: usize = 64;
const SAMPLE_BYTES: u32 = 3 * 224 * 224 * 4;
const BATCH_BYTES: usize = BATCH * SAMPLE_BYTES as usize;
/// Batches under way at once.
const DEPTH: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let n_batches = args.next().map_or(Ok(200), |n| n.parse())?;
    let only = args.next();
    let dir = tempfile::tempdir()?;
    let security = security(dir.path())?;
    let unix = format!("unix://{}/socket", dir.path().display());
    println!("| address | wall GB/s | device GB/s per core | host GB/s per core |");
    println!("|---|---:|---:|---:|");
    for address in
        [&unix, "tcp://localhost:0", "tcp+noise://localhost:0", "tls://localhost:0"]
    {
        let address: Address = address.parse()?;
        let kind = address.to_string();
        let kind = kind.split(':').next().unwrap_or_default().to_owned();
        if only.as_ref().is_some_and(|only| *only != kind) {
            continue;
        }
        let [wall, device, host] = measure(&address, &security, n_batches)?;
        println!("| {kind} | {wall:.2} | {device:.2} | {host:.2} |");
    }
    Ok(())
}

/// GB/s by the clock, by the device's CPU time and by the host's.
fn measure(
    address: &Address,
    security: &Security,
    n_batches: u64,
) -> Result<[f64; 3], Box<dyn Error>> {
    let stop = AtomicBool::new(false);
    let listener = Listener::bind(address, security)?;
    let address = listener.address().clone();
    thread::scope(|scope| {
        let device = scope.spawn(|| {
            let socket = listener.accept(PATIENCE).ok().flatten().expect("a host");
            let began = cpu_seconds();
            let terms = Terms { security, stop: &stop };
            let ended = serve_connection(socket, &mut Ready::default(), terms);
            ended.expect("an orderly end");
            cpu_seconds() - began
        });
        let mut host = Stream::connect(&address, security.clone(), PATIENCE)?;
        host.hello()?;
        host.open(&Session {
            max_batch: DEPTH * 16,
            ..conformance::session(SAMPLE_BYTES)
        })?;
        let (cpu, wall) = (cpu_seconds(), Instant::now());
        receive(&mut host, n_batches)?;
        let (cpu, wall) = (cpu_seconds() - cpu, wall.elapsed().as_secs_f64());
        drop(host);
        stop.store(true, Ordering::Relaxed);
        let device = device.join().expect("a device");
        #[allow(clippy::cast_precision_loss, reason = "a rate")]
        let gigabytes = n_batches as f64 * BATCH_BYTES as f64 / 1e9;
        Ok([gigabytes / wall, gigabytes / device, gigabytes / cpu])
    })
}

fn receive(host: &mut Stream, n_batches: u64) -> Result<(), Box<dyn Error>> {
    let config = RingConfig { n_slots: DEPTH, slot_bytes: BATCH_BYTES };
    let ring = Ring::new(config)?;
    let (mut n_asked, mut n_done) = (0, 0);
    while n_done < n_batches {
        while n_asked < n_batches {
            let Some(slot) = ring.take(Duration::ZERO) else { break };
            let job = Job {
                id: JobId(n_asked),
                epoch: EpochIdx(0),
                batch: BatchIdx(0),
                samples: vec![SampleId(0); BATCH],
                need_ns: 0,
            };
            host.submit(job, slot).map_err(|rejected| rejected.to_string())?;
            n_asked += 1;
        }
        match host.poll(PATIENCE)? {
            Polled::Completion(_) => n_done += 1,
            Polled::Extra | Polled::Nothing => return Err("a batch is missing".into()),
        }
    }
    Ok(())
}

fn cpu_seconds() -> f64 {
    let time =
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has it");
    Duration::from(time).as_secs_f64()
}

/// A device whose batches are made already: its slots are as they are.
#[derive(Debug, Default)]
struct Ready {
    done: VecDeque<(JobId, HostSlot)>,
    checksum: Option<u64>,
}

impl Serve for Ready {
    fn hello(&mut self) -> Capabilities {
        Capabilities {
            protocol_version: PROTOCOL_VERSION,
            name: "ready".to_owned(),
            emulated: true,
            ops: Vec::new(),
            slots: DEPTH,
            max_batch_bytes: BATCH_BYTES as u64,
            features: Vec::new(),
        }
    }

    fn open(&mut self, _session: Session) -> Result<(), Declined> {
        Ok(())
    }

    fn attest(
        &mut self,
        _inquiry: &Inquiry,
    ) -> Result<Vec<Option<RecordDigest>>, String> {
        Err("there are no records".to_owned())
    }

    fn submit(&mut self, job: Job, slot: HostSlot) -> Result<(), Box<Refused>> {
        // All slots hold the same.
        self.checksum.get_or_insert_with(|| XxHash3_64::oneshot(&slot[..BATCH_BYTES]));
        self.done.push_back((job.id, slot));
        Ok(())
    }

    fn poll(&mut self, timeout: Duration) -> Option<Finished> {
        let Some((job, slot)) = self.done.pop_front() else {
            thread::sleep(timeout);
            return None;
        };
        let checksum = self.checksum.unwrap_or_default();
        let (bad, damaged) = (Vec::new(), Vec::new());
        let product = Product { len: BATCH_BYTES, checksum, bad, damaged };
        Some(Finished { job, slot, result: Ok(product), device_ns: 0, lateness_ns: 0 })
    }

    fn revoke(&mut self, _job: JobId) {}

    fn forget(&mut self, _job: JobId) {}

    fn stats(&mut self) -> DeviceStats {
        DeviceStats::default()
    }

    fn close(&mut self) {}
}

/// A key and certificates, made for this.
fn security(dir: &Path) -> Result<Security, Box<dyn Error>> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate()?;
    let ca = authority.self_signed(&authority_key)?;
    let authority = Issuer::new(authority, authority_key);
    let key = KeyPair::generate()?;
    let cert = CertificateParams::new(vec!["localhost".to_owned()])?;
    let cert = cert.signed_by(&key, &authority)?;
    let file = |name: &str, text: String| -> Result<_, std::io::Error> {
        let path = dir.join(name);
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(path)
    };
    let files = TlsFiles {
        ca: file("ca.pem", ca.pem())?,
        cert: file("cert.pem", cert.pem())?,
        key: file("key.pem", key.serialize_pem())?,
    };
    let key = dir.join("shared.key");
    Key::generate(&key)?;
    Ok(Security::load(Some(&key), Some(&files), Insecure::Refused)?)
}
