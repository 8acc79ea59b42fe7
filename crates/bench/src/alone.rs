//! `bench ops` without data: every op by itself, on one thread, next to torchvision and OpenCV.
//!
//! Each is measured in its native form: ours as in a run, with memory that is reused and in place if
//! possible; torchvision on tensors and on Pillow's images, and OpenCV on arrays, all of which allocate
//! new ones. In each of several rounds, everyone who has the op runs it, in rotating order. Results are
//! medians over the rounds, and the median of the rounds' ratios. Reading order: `cases` is what is
//! measured, `names` has the names, `work` does it, `peers` has others do it.

mod cases;
mod names;
mod peers;
mod work;

use std::time::Duration;

use bothends_core::columns;
use bothends_ops::kernels::Level;
use serde::Serialize;

use self::cases::Case;
use self::peers::Peers;
pub use self::peers::{Peer, PeersCommand};
use self::work::{Images, Timed, measure};
use crate::table::cell;
use crate::timing::median;
use crate::{BenchError, Tell};

/// What is measured.
#[derive(Debug, Clone)]
pub struct AloneBench {
    /// A file that holds an image.
    pub image: Vec<u8>,
    /// Only ops with these names, either torchvision's functional ones or those of recipes; all if
    /// empty.
    pub only: Vec<String>,
    /// Whose kernels; the peers are compared with the first.
    pub kernels: Vec<Level>,
    /// How often everything is measured.
    pub rounds: u32,
    /// How long one op is measured in a round, at least; in whole milliseconds.
    pub at_least: Duration,
    /// The peers, if any.
    pub peers: Option<PeersCommand>,
}

/// The results.
#[derive(Debug, Clone, Serialize)]
pub struct AloneResult {
    /// Rounds.
    pub rounds: u32,
    /// The levels of kernels, as in [`OpResult::ours`].
    pub levels: Vec<&'static str>,
    /// The peers and their versions.
    pub peers: Option<String>,
    /// Op by op.
    pub ops: Vec<OpResult>,
    /// Ops that a peer also has.
    pub n_compared: usize,
    /// How many of these ours does in less time than every peer.
    pub n_ahead: usize,
}

/// The result for one op: microseconds per image, medians over the rounds.
#[derive(Debug, Clone, Serialize)]
pub struct OpResult {
    /// torchvision's name.
    pub op: &'static str,
    /// Its parameters.
    pub parameters: String,
    /// By level of kernels.
    pub ours: Vec<Measured>,
    /// By peer, of those who have it.
    pub peers: Vec<(Peer, Measured)>,
    /// The fastest peer's time ÷ ours: the median over the rounds.
    pub best_peer_by_ours: Option<f64>,
}

/// One contender's time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// Microseconds per image.
    pub us: f64,
    /// The mean over the bytes of the image made, which is about the same for the same work. `None` if
    /// more than one image is made, or something is drawn at random.
    pub mean_value: Option<f64>,
}

/// The names that ops are measured by. [`AloneBench::only`] may have them, and those of recipes.
#[must_use]
pub fn names() -> Vec<&'static str> {
    names::all()
}

impl AloneBench {
    /// Measures. Uses one thread, and one for a program that runs the peers meanwhile.
    ///
    /// # Errors
    /// [`BenchError`] for a name that no op has, for an image that cannot be decoded, and when the
    /// peers' program does not do its part.
    pub fn run(&self, tell: Tell<'_>) -> Result<AloneResult, BenchError> {
        let cases = self.cases()?;
        let images = Images::of(&self.image)?;
        let mut peers = match &self.peers {
            Some(command) => {
                tell("starting the peers");
                Some(Peers::start(command, &images)?)
            }
            None => None,
        };
        let mut rounds: Vec<Vec<Round>> = cases.iter().map(|_| Vec::new()).collect();
        for nth in 0..self.rounds {
            for (case, rounds) in cases.iter().zip(&mut rounds) {
                let Case { op, parameters, .. } = case;
                tell(&format!("round {} of {}: {op} {parameters}", nth + 1, self.rounds));
                rounds.push(self.round(nth as usize, case, &images, peers.as_mut())?);
            }
        }
        let ops = cases.into_iter().zip(&rounds);
        let ops: Vec<_> = ops.map(|(case, rounds)| OpResult::of(case, rounds)).collect();
        let ratios = || ops.iter().filter_map(|op| op.best_peer_by_ours);
        Ok(AloneResult {
            rounds: self.rounds,
            levels: self.kernels.iter().map(|level| level.name()).collect(),
            peers: peers.map(|peers| peers.versions.clone()),
            n_compared: ratios().count(),
            n_ahead: ratios().filter(|ratio| *ratio > 1.0).count(),
            ops,
        })
    }

    fn cases(&self) -> Result<Vec<Case>, BenchError> {
        let mut wanted = Vec::new();
        for name in &self.only {
            wanted.extend(names::measured_as(name)?);
        }
        let is_wanted = |case: &Case| wanted.is_empty() || wanted.contains(&case.op);
        Ok(cases::all().into_iter().filter(is_wanted).collect())
    }

    /// All contenders once, starting with a different one in every round.
    fn round(
        &self,
        nth: usize,
        case: &Case,
        images: &Images,
        mut peers: Option<&mut Peers>,
    ) -> Result<Round, BenchError> {
        let n_levels = self.kernels.len();
        let n = n_levels + if peers.is_some() { Peer::ALL.len() } else { 0 };
        let mut round = vec![None; n];
        for turn in 0..n {
            let who = (turn + nth) % n;
            round[who] = match (self.kernels.get(who), peers.as_deref_mut()) {
                (Some(level), _) => {
                    Some(measure(&case.work, images, *level, self.at_least)?)
                }
                (None, Some(peers)) => {
                    peers.measure(Peer::ALL[who - n_levels], case, self.at_least)?
                }
                (None, None) => None,
            };
        }
        let peers = round.split_off(n_levels);
        Ok(Round { ours: round.into_iter().flatten().collect(), peers })
    }
}

/// The times of all contenders in one round.
#[derive(Debug)]
struct Round {
    /// By level.
    ours: Vec<Timed>,
    /// By peer, in the order of [`Peer::ALL`]; empty where none were asked.
    peers: Vec<Option<Timed>>,
}

impl Round {
    fn ratio(&self) -> Option<f64> {
        let best =
            self.peers.iter().flatten().map(|timed| timed.us).min_by(f64::total_cmp)?;
        Some(best / self.ours.first()?.us)
    }
}

impl OpResult {
    fn of(case: Case, rounds: &[Round]) -> Self {
        let n_levels = rounds.first().map_or(0, |round| round.ours.len());
        let ours = (0..n_levels).filter_map(|nth| {
            Measured::of(rounds.iter().map(|round| round.ours.get(nth)))
        });
        let peers = Peer::ALL.iter().enumerate().filter_map(|(nth, &peer)| {
            let timed = rounds.iter().map(|round| round.peers.get(nth)?.as_ref());
            Some((peer, Measured::of(timed)?))
        });
        let ratios: Vec<f64> = rounds.iter().filter_map(Round::ratio).collect();
        Self {
            ours: ours.collect(),
            peers: peers.collect(),
            best_peer_by_ours: (!ratios.is_empty()).then(|| median(&ratios)),
            op: case.op,
            parameters: case.parameters,
        }
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.op.to_owned(), self.parameters.clone()];
        cells.extend(self.ours.iter().map(|ours| cell(Some(ours.us), 1)));
        cells
    }

    fn peer_cells(&self) -> Vec<String> {
        let us = |peer| {
            let found = self.peers.iter().find(|(other, _)| *other == peer);
            cell(found.map(|(_, measured)| measured.us), 1)
        };
        let mut cells = Peer::ALL.map(us).to_vec();
        cells.push(cell(self.best_peer_by_ours, 2));
        cells
    }
}

impl Measured {
    /// The median over the rounds; `None` without any.
    fn of<'a>(timed: impl Iterator<Item = Option<&'a Timed>>) -> Option<Self> {
        let timed: Vec<&Timed> = timed.flatten().collect();
        let us: Vec<f64> = timed.iter().map(|timed| timed.us).collect();
        Some(Self { us: median(&us), mean_value: timed.first()?.mean_value })
    }
}

impl AloneResult {
    /// The result for a terminal, ending in a newline.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "µs per image on one thread, 224 x 224 x 3 unless stated otherwise; medians of \
             {} rounds\n",
            self.rounds
        );
        if let Some(peers) = &self.peers {
            text += &format!("peers: {peers}, one thread each\n");
        }
        let mut headings = vec!["op".to_owned(), "parameters".to_owned()];
        headings.extend(self.levels.iter().map(|level| format!("ours, {level}")));
        let mut lines = vec![headings];
        lines.extend(self.ops.iter().map(OpResult::cells));
        if self.peers.is_some() {
            let peers = ["tensor", "Pillow", "OpenCV", "best ÷ ours"];
            lines[0].extend(peers.map(str::to_owned));
            for (line, op) in lines[1..].iter_mut().zip(&self.ops) {
                line.extend(op.peer_cells());
            }
        }
        text.push('\n');
        text += &columns(&lines, 2);
        text.push('\n');
        text += &match self.peers {
            Some(_) => format!(
                "ahead in {} of {} ops that a peer has, of {}\n",
                self.n_ahead,
                self.n_compared,
                self.ops.len()
            ),
            None => {
                "to compare with torchvision and OpenCV: --peers PYTHON, or scripts/bench-ops, \
                     which installs them\n"
                    .to_owned()
            }
        };
        text
    }
}
