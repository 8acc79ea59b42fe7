//! One host of a device, as the loop that serves its connection drives it.
//!
//! `submit` queues a job with its slot, workers fill it, and `poll` answers a finished job when its time
//! has come. A job occupies one of the session's places from `submit` until it is answered. When a guest
//! is dropped its jobs are gone at once; workers finish the samples that they are at.

use std::sync::{Arc, Condvar, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bothends_core::recipe::Recipe;
use bothends_csd::admission::Peer;
use bothends_csd::job::{KNOWS_RUNS, SHARES_JOBS};
use bothends_csd::{
    Capabilities, CsdError, Declined, DeviceStats, Finished, Inquiry, Job, JobId,
    PROTOCOL_VERSION, RecordDigest, Refused, Serve, Session, Whose,
};
use bothends_slots::HostSlot;

use super::seats::{Held, Seat, State};
use super::{Shared, openings};
use crate::costs::Costs;
use crate::cpu;
use crate::memory::Want;
use crate::work::shares::SeatId;

/// Before the end of a hold the wait becomes a spin, because a sleep may end this much late.
const SPIN: Duration = Duration::from_micros(100);

/// A host's place on a device.
#[derive(Debug)]
pub struct Guest<C: Costs> {
    shared: Arc<Shared<C>>,
    id: SeatId,
    bell: Arc<Condvar>,
    peer: Peer,
}

impl<C: Costs> Guest<C> {
    /// One that has entered, with this seat and bell.
    pub(super) fn of(
        shared: &Arc<Shared<C>>,
        (id, bell): (SeatId, Arc<Condvar>),
        peer: Peer,
    ) -> Self {
        Self { shared: Arc::clone(shared), id, bell, peer }
    }

    /// Waits a moment where hosts open sessions all the time, or this one was refused many, while others
    /// have work.
    fn wait_to_open(&self) {
        let began = Instant::now();
        let until = began + openings::MOST_WAIT;
        let refused = self.shared.state().refusals.wait(self.peer, self.shared.now_ns());
        loop {
            let mut state = self.shared.state();
            let now_ns = self.shared.now_ns();
            let wait = state.openings.wait(now_ns);
            let wait = wait.max(refused.saturating_sub(began.elapsed()));
            let left = until.saturating_duration_since(Instant::now());
            let waits = !wait.is_zero() && !left.is_zero() && !state.ending;
            if !waits || !state.is_anybody_else_busy(self.id) {
                return state.openings.pay(now_ns, openings::BESIDE_NS);
            }
            drop(state);
            thread::sleep(wait.min(left));
        }
    }

    /// Opens a session, unless it is refused.
    fn agree(&mut self, session: Session) -> Result<(), Declined> {
        let shared = &self.shared;
        let begun_ns = shared.now_ns();
        let room = shared.room.with_pixels(shared.state().pixels);
        let agreed = shared.tables.agree(&session, &*shared.store, &room);
        let session = Session { manifest: Vec::new(), ..session };
        let list_bytes = shared.tables.bytes();
        let mut state = shared.state();
        let now_ns = shared.now_ns();
        state.openings.pay(now_ns, now_ns.saturating_sub(begun_ns));
        let agreed = agreed?;
        let want = Want {
            batch_bytes: agreed.batch_bytes(),
            list_bytes: agreed.new_list_bytes.saturating_add(agreed.own_bytes()),
            held_bytes: state
                .held_bytes()
                .saturating_add(list_bytes.saturating_sub(agreed.new_list_bytes)),
            kept_bytes: shared.results.counts().held_bytes,
        };
        let n_slots = state.memory().slots_of(want, shared.config.n_slots)?;
        let own_bytes = agreed.own_bytes();
        let agreed = agreed.shared_with(state.jobs.owner(self.peer.credential));
        let job = state.jobs.enter(&session, self.peer.credential);
        let seat = self.seat(&mut state);
        (seat.agreed, seat.n_slots) = (Some(Arc::new(agreed)), n_slots);
        seat.whose = Whose { run: session.run, job: session.job.map(|job| job.name) };
        let batch_bytes = want.batch_bytes.saturating_mul(n_slots.into());
        seat.held_bytes = batch_bytes.saturating_add(own_bytes);
        state.begin(self.id, job);
        shared.limit_results(&state);
        Ok(())
    }

    fn seat<'a>(&self, state: &'a mut State) -> &'a mut Seat {
        // It is taken out when this is dropped.
        state.seats.entry(self.id).or_default()
    }
}

impl<C: Costs> Serve for Guest<C> {
    fn hello(&mut self) -> Capabilities {
        let known = Recipe::known_before_cut();
        let config = &self.shared.config;
        let mut state = self.shared.state();
        let max_batch_bytes = state.largest_batch_bytes(self.shared.now_ns());
        let seat = self.seat(&mut state);
        let most = config.n_slots.max(1);
        let slots = seat.agreed.as_ref().map_or(most, |_| seat.n_slots);
        drop(state);
        Capabilities {
            protocol_version: PROTOCOL_VERSION,
            name: config.name.clone(),
            emulated: config.emulated,
            ops: known.into_iter().map(str::to_owned).collect(),
            slots,
            max_batch_bytes,
            features: [SHARES_JOBS, KNOWS_RUNS].map(str::to_owned).to_vec(),
        }
    }

    fn open(&mut self, session: Session) -> Result<(), Declined> {
        self.close();
        self.wait_to_open();
        let opened = self.agree(session);
        if matches!(opened, Err(Declined::Refused(_))) {
            let now_ns = self.shared.now_ns();
            self.shared.state().refusals.add(self.peer, now_ns);
        }
        opened
    }

    fn attest(&mut self, inquiry: &Inquiry) -> Result<Vec<Option<RecordDigest>>, String> {
        let agreed = self.seat(&mut self.shared.state()).agreed.clone();
        let agreed = agreed.ok_or("a question came before a session was opened")?;
        agreed.attest(&*self.shared.store, inquiry)
    }

    fn submit(&mut self, job: Job, slot: HostSlot) -> Result<(), Box<Refused>> {
        let arrival_ns = self.shared.now_ns();
        let mut state = self.shared.state();
        let is_ending = state.ending;
        let seat = self.seat(&mut state);
        let Some(agreed) = seat.agreed.clone().filter(|_| !is_ending) else {
            let reason = match is_ending {
                true => "the device is about to end",
                false => "a job came before a session was opened",
            };
            let source = CsdError::SessionRefused { reason: reason.to_owned() };
            return Err(Box::new(Refused { job, slot, source }));
        };
        if seat.n_taken() >= seat.n_slots as usize {
            return Err(Box::new(Refused { job, slot, source: CsdError::Full }));
        }
        seat.line.push(&agreed, (job, slot), arrival_ns);
        state.asks(self.id);
        self.shared.wake_scouts(&state);
        self.shared.retire(&mut state, self.id);
        Ok(())
    }

    fn poll(&mut self, timeout: Duration) -> Option<Finished> {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.state();
        loop {
            let now_ns = self.shared.now_ns();
            let seat = self.seat(&mut state);
            let due = seat.next_due(now_ns);
            if let Some((held_idx, 0)) = due {
                return Some(seat.answer(held_idx, now_ns));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let hold =
                due.map_or(Duration::MAX, |(_, wait_ns)| Duration::from_nanos(wait_ns));
            if hold <= SPIN {
                drop(state);
                let until = Instant::now() + hold.min(left);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                state = self.shared.state();
                continue;
            }
            let wait = left.min(hold - SPIN);
            let woken = self.bell.wait_timeout(state, wait);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn revoke(&mut self, job: JobId) {
        let mut state = self.shared.state();
        let seat = self.seat(&mut state);
        let Some(slot) = seat.line.take_back(job) else { return };
        let result = Err("revoked before it was begun".to_owned());
        seat.finished.push(Held { job, slot, result, device_ns: 0, due_ns: None });
        self.shared.retire(&mut state, self.id);
    }

    fn forget(&mut self, job: JobId) {
        let mut state = self.shared.state();
        let seat = self.seat(&mut state);
        seat.line.forget(job);
        seat.finished.retain(|held| held.job != job);
        self.shared.retire(&mut state, self.id);
    }

    /// Of this host's jobs; CPU time and energy are the whole device's.
    fn stats(&mut self) -> DeviceStats {
        let now_ns = self.shared.now_ns();
        let energy = self.shared.costs().energy(now_ns);
        let mut state = self.shared.state();
        let seat = self.seat(&mut state);
        // A job that is held is one at which the modelled device still works.
        let is_held = |held: &&Held| held.due_ns.is_some_and(|due_ns| due_ns > now_ns);
        let n_held = seat.finished.iter().filter(is_held).count();
        let n_open = seat.line.len() + n_held;
        DeviceStats {
            queued: u32::try_from(n_open).unwrap_or(u32::MAX),
            cpu_seconds: cpu::process_seconds(),
            energy,
            ..seat.stats.clone()
        }
    }

    fn whose(&self) -> Whose {
        let state = self.shared.state();
        state.seats.get(&self.id).map(|seat| seat.whose.clone()).unwrap_or_default()
    }

    fn close(&mut self) {
        let mut state = self.shared.state();
        let seat = self.seat(&mut state);
        let was_open = seat.agreed.is_some();
        seat.held_bytes = 0;
        seat.drop_jobs();
        let unwanted = state.end(self.id);
        self.shared.limit_results(&state);
        drop(state);
        if let Some(work) = unwanted {
            self.shared.results.forget_work(work);
        }
        if was_open {
            // The next session may be long in coming.
            self.shared.publish();
        }
    }
}

impl<C: Costs> Drop for Guest<C> {
    fn drop(&mut self) {
        self.close();
        self.shared.state().leave(self.id);
    }
}
