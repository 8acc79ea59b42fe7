//! The thread of one place of a pool: it reaches the member that the place is given, serves it while it
//! is there, and waits for the next.
//!
//! It decides nothing. Which member has which place is `devices/roster.rs`'s, what is done with a connected
//! device `devices/thread.rs`'s.

use std::sync::Arc;

use bothends_core::members::Welcome;
use bothends_core::recipe::Recipe;
use bothends_csd::connect::ConnectOptions;
use bothends_csd::{CsdError, JobTerms, Transport};

use crate::collect::collector::Command;
use crate::collect::producer::Joins;
use crate::devices::reach::{Entrance, Reach, Reached, Way, may_come};
use crate::devices::roster::{Hold, Roster, Turn};
use crate::devices::thread::ProducerLoop;
use crate::read::source::Source;

/// A place of a pool, and what its members are told.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    pub(crate) roster: Roster,
    /// Which of the pool's places.
    pub(crate) place: usize,
    pub(crate) options: ConnectOptions,
    pub(crate) source: Arc<Source>,
    pub(crate) recipe: Recipe,
    pub(crate) batch_size: u32,
    pub(crate) job: Option<JobTerms>,
}

impl Seat {
    fn reach(&self, turn: &Turn) -> Reach {
        Reach {
            way: Way::To(turn.address.clone(), self.options.clone()),
            source: Arc::clone(&self.source),
            recipe: self.recipe.clone(),
            batch_size: self.batch_size,
            job: self.job.clone(),
            suspects: turn.suspects.clone(),
        }
    }
}

/// A place's thread.
#[derive(Debug)]
pub(crate) struct Seated {
    pub(crate) seat: Seat,
    pub(crate) hold: Hold,
    pub(crate) entrance: Entrance,
}

impl Seated {
    /// The loop of the thread, until it is told to stop; `first` serves a member that is there. Gives the
    /// way to the member back, or why there is none.
    pub(crate) fn run(
        self,
        mut first: Option<ProducerLoop>,
    ) -> Result<Box<dyn Transport>, String> {
        let (roster, hold) = (&self.seat.roster, self.hold);
        let (stop, presence) = (&self.entrance.stop, &self.entrance.presence);
        loop {
            if let Some(serving) = first.take() {
                let served = serving.run();
                if stop.is_set() {
                    return served;
                }
                if presence.is_expelled() {
                    return Err(self.bars());
                }
                match served {
                    // The collector has let go of it.
                    Ok(_) if roster.is_leaving(hold) => presence.has_left(),
                    Ok(_) => presence.is_missing("its jobs failed".to_owned()),
                    Err(why) => presence.is_missing(why),
                }
                roster.lost(hold, presence.missing());
            }
            let is_to_end = || stop.is_set() || presence.is_expelled();
            let Some(turn) = roster.turn(hold, is_to_end) else {
                if presence.is_expelled() {
                    return Err(self.bars());
                }
                return Err("the run ended before it was there".to_owned());
            };
            first = self.tries(&turn);
        }
    }

    /// Has a member that has lied not used any more. Gives why this place is not, either.
    fn bars(&self) -> String {
        let liar = self.entrance.presence.liar();
        self.let_go(self.seat.roster.barred(self.hold, liar.as_deref()));
        "it has lied".to_owned()
    }

    /// Has the collector give no more work to members of other places.
    fn let_go(&self, members: Vec<(usize, String)>) {
        let first_line = self.entrance.line - self.seat.place;
        for (place, member) in members {
            // A collector that is gone gives nobody any.
            let _ =
                self.entrance.commands.send(Command::Leave(first_line + place, member));
            self.entrance.bell.ring();
        }
    }

    /// What serves the member, where it can be reached.
    fn tries(&self, turn: &Turn) -> Option<ProducerLoop> {
        let (seat, presence) = (&self.seat, &self.entrance.presence);
        presence.is_of(turn.address.to_string(), turn.missing.clone());
        match seat.reach(turn).now() {
            Ok(reached) => self.welcome(turn, reached),
            // The place may be another thread's by now.
            Err(_) if self.entrance.stop.is_set() => None,
            Err(error) => {
                self.is_not_there(&error);
                seat.roster.failed(self.hold, &error, presence.missing());
                None
            }
        }
    }

    fn welcome(&self, turn: &Turn, reached: Reached) -> Option<ProducerLoop> {
        let seat = &self.seat;
        if seat.roster.reached(self.hold) == Welcome::Unwanted {
            return None;
        }
        let joins = if turn.is_known_here { Joins::Again } else { Joins::Another };
        let serves = self.entrance.join(reached, joins);
        if seat.roster.is_leaving(self.hold) {
            // It was let go before the collector knew that it is there.
            self.let_go(vec![(seat.place, turn.address.to_string())]);
        }
        Some(serves)
    }

    fn is_not_there(&self, error: &CsdError) {
        let presence = &self.entrance.presence;
        match may_come(error) {
            true => presence.is_missing(presence.line(error)),
            false => presence.is_mistaken(presence.line(error)),
        }
    }
}
