//! Records fetched over a long link, in virtual time: what order costs, and what a hedge is worth.
//!
//! The decisions are those of the runtime, `bothends_core::fetch::FetchQueue`. The link is a model
//! (`remote/network.rs`): connections with a slow start each, one rate that they share, and packet loss
//! as delay. `remote/play.rs` plays one epoch; a [`RemoteScenario`] is read from a file of
//! `configs/experiments/remote` and played with every delivery, loss rate and seed.

mod beside;
mod network;
mod play;
mod scenario;
mod table;

use bothends_core::fetch::{Growth, Hedge};
use bothends_core::ids::Ns;
use serde::Serialize;
use serde_json::Value;

pub use beside::{BesideOutcome, BesideWorld, Hosts, Yields, beside};
pub use network::{Fault, Network};
pub use play::{RemoteOutcome, fetch};
pub use scenario::{all, find};
pub use table::remote_table;

use crate::result::LABEL;
use crate::scenario::with_seeds;
pub(crate) use play::median;

/// Records behind a link, with a name and the seeds with which they are fetched.
#[derive(Debug, Clone)]
pub struct RemoteScenario {
    /// Its name on the command line and in results.
    pub name: String,
    /// A description for people, on one line.
    pub about: String,
    /// Each seed is played once.
    pub seeds: Vec<u64>,
    /// Loss rates of the link; each is played.
    pub losses: Vec<f64>,
    /// Everything else.
    pub world: RemoteWorld,
    /// What it was read from; [`Value::Null`] if from nothing.
    pub file: Value,
}

/// One epoch of records behind a link.
#[derive(Debug, Clone)]
pub struct RemoteWorld {
    /// How many records are fetched.
    pub n_records: u32,
    /// Their mean length.
    pub record_bytes: u64,
    /// The coefficient of variation of their lengths.
    pub cv: f64,
    /// Requests in flight.
    pub requests: u32,
    /// Answers after which one more request may be in flight, from one on; 0 begins with all.
    pub ramp: u32,
    /// Whether the window stops growing where throughput does.
    pub growth: Growth,
    /// What is between.
    pub network: Network,
    /// How the records are delivered.
    pub delivery: Delivery,
    /// Whether the oldest missing record is requested a second time.
    pub hedge: Hedge,
    /// Of lengths, losses and waits.
    pub seed: u64,
}

/// In which order records are delivered, and how far requests run ahead of delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// In the plan's order; so many times the bytes in flight may be held.
    Ordered(u32),
    /// As they come.
    Unordered,
}

impl Delivery {
    /// The name in tables and results.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Ordered(1) => "in-order window".to_owned(),
            Self::Ordered(factor) => format!("ordered {factor}x"),
            Self::Unordered => "unordered".to_owned(),
        }
    }
}

/// What is compared in every scenario.
const DELIVERIES: [Delivery; 4] = [
    Delivery::Ordered(1),
    Delivery::Ordered(2),
    Delivery::Ordered(4),
    Delivery::Unordered,
];

/// How a delivery does at each loss rate.
#[derive(Debug, Clone, Serialize)]
pub struct RemoteRow {
    /// See [`Delivery::name`].
    pub delivery: String,
    /// Whether late records were hedged.
    pub hedge: bool,
    /// One for each loss rate.
    pub cells: Vec<RemoteCell>,
}

/// How a delivery does at one loss rate: medians over the seeds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct RemoteCell {
    /// The part of the packets that is lost.
    pub loss: f64,
    /// Records per second, the first round trip included.
    pub records_per_s: f64,
    /// The least of a seed.
    pub least_records_per_s: f64,
    /// The longest time without a delivery in seconds.
    pub longest_gap_s: f64,
    /// Records that were requested a second time while the first request was in flight.
    pub hedged: f64,
    /// Records that failed finally.
    pub failed: f64,
}

/// All of a scenario.
#[derive(Debug, Clone, Serialize)]
pub struct RemoteResult {
    /// The scenario's name.
    pub name: String,
    /// Its description.
    pub about: String,
    /// That it is modelled.
    pub label: &'static str,
    /// Records of an epoch.
    pub records: u32,
    /// Their mean length.
    pub record_bytes: u64,
    /// Requests in flight.
    pub requests: u32,
    /// The time there and back in seconds.
    pub rtt_s: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// The seeds played.
    pub seeds: Vec<u64>,
    /// Each delivery, without and with hedges.
    pub rows: Vec<RemoteRow>,
    /// What was played, with these seeds: the file to play it again with.
    pub scenario: Value,
}

impl RemoteScenario {
    /// Plays every delivery at every loss rate with every seed.
    #[must_use]
    pub fn run(&self) -> RemoteResult {
        let hedges = [Hedge::Off, Hedge::On];
        let rows = DELIVERIES
            .iter()
            .flat_map(|delivery| hedges.map(|hedge| self.row(*delivery, hedge)))
            .collect();
        RemoteResult {
            name: self.name.clone(),
            about: self.about.clone(),
            label: LABEL,
            records: self.world.n_records,
            record_bytes: self.world.record_bytes,
            requests: self.world.requests,
            rtt_s: seconds(self.world.network.rtt_ns),
            bytes_per_s: self.world.network.bytes_per_s,
            seeds: self.seeds.clone(),
            rows,
            scenario: with_seeds(&self.file, &self.seeds),
        }
    }

    fn row(&self, delivery: Delivery, hedge: Hedge) -> RemoteRow {
        let cells = self.losses.iter().map(|loss| self.cell(delivery, hedge, *loss));
        let hedge = hedge == Hedge::On;
        RemoteRow { delivery: delivery.name(), cells: cells.collect(), hedge }
    }

    /// One delivery at one loss rate.
    #[must_use]
    pub fn cell(&self, delivery: Delivery, hedge: Hedge, loss: f64) -> RemoteCell {
        let outcomes: Vec<RemoteOutcome> = self
            .seeds
            .iter()
            .map(|seed| {
                let network = Network { loss, ..self.world.network.clone() };
                let seed = *seed;
                fetch(&RemoteWorld {
                    network,
                    delivery,
                    hedge,
                    seed,
                    ..self.world.clone()
                })
            })
            .collect();
        let of = |figure: &dyn Fn(&RemoteOutcome) -> f64| -> Vec<f64> {
            outcomes.iter().map(figure).collect()
        };
        let rates = of(&|it| f64::from(it.n_delivered) / seconds(it.ended.0));
        RemoteCell {
            loss,
            least_records_per_s: rates.iter().copied().fold(f64::INFINITY, f64::min),
            records_per_s: median(rates),
            longest_gap_s: median(of(&|it| seconds(it.longest_gap_ns))),
            hedged: median(of(&|it| float(it.counts.hedged))),
            failed: median(of(&|it| float(it.counts.failed))),
        }
    }
}

/// Exact below 2^53.
#[allow(clippy::cast_precision_loss, reason = "figures are estimates")]
fn float(n: u64) -> f64 {
    n as f64
}

fn seconds(ns: u64) -> f64 {
    float(ns.max(1)) / 1e9
}

/// A time in seconds after another one.
fn after(at: Ns, seconds: f64) -> Ns {
    at.plus(nanoseconds(seconds))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and a time below 0 is none"
)]
pub(crate) fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
