//! The members of a pool and the places that they have among a run's devices.
//!
//! A run has a fixed number of places for a pool, each a device for the collector, with a thread of its own
//! (`devices/seat.rs`). Which member has which place changes while the run goes on. `core::members` decides
//! which to try, and when; this file knows their addresses and hands the tries to places that are idle.
//! Who lists the members is `devices/sources.rs`.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bothends_core::ids::Ns;
use bothends_core::members::{Failure, MemberId, Members, MembersConfig, Welcome};
use bothends_csd::CsdError;
use bothends_csd::address::Address;
use bothends_csd::pool::Pool;

use crate::devices::attest::Suspects;
use crate::devices::reach::may_come;
use crate::devices::trust::Delivered;
use crate::threads::shutdown::PATIENCE;

/// The waits between tries; a member that was killed is there again within a second or so.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Members tried at once.
const MOST_TRYING: u32 = 16;

/// A pool's members, as all threads of a run see them. Clones are one.
#[derive(Clone)]
pub(crate) struct Roster(Arc<Shared>);

struct Shared {
    pool: Pool,
    /// What its members have delivered.
    delivered: Delivered,
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    members: Members,
    known: BTreeMap<MemberId, Known>,
    ids: HashMap<String, MemberId>,
    next_id: u64,
    places: Vec<Place>,
    /// Whether the source has been asked.
    is_listed: bool,
    /// Tries that have come to an end.
    n_tried: u64,
}

/// What is kept of a member while it is of interest.
struct Known {
    address: Address,
    suspects: Suspects,
    /// Why it is not attached, where that has been said.
    missing: Option<String>,
}

/// One place of the pool among the devices.
#[derive(Debug, Default)]
struct Place {
    /// How often its thread has been cut off.
    n_cut_off: u64,
    /// Its thread waits for a member.
    is_idle: bool,
    /// A member that it is to try.
    offer: Option<MemberId>,
    now: Option<MemberId>,
    /// The members that it has had, the latest last.
    before: Vec<MemberId>,
}

/// A thread's hold on a place. Once another thread has the place, nothing that is said through it counts:
/// a thread may outlive its engine by as long as a connection takes to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    place: usize,
    n_cut_off: u64,
}

/// A member for a place to try.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) address: Address,
    pub(crate) suspects: Suspects,
    /// Why it was missing, where that has been said.
    pub(crate) missing: Option<String>,
    /// Whether the place had this member last, or none yet.
    pub(crate) is_known_here: bool,
}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Roster").field(&self.0.pool.text).finish()
    }
}

impl Roster {
    /// Of a pool that has so many places. Its tries are in an order drawn from `seed`.
    pub(crate) fn new(pool: &Pool, n_places: u32, seed: u64) -> Self {
        let config = MembersConfig {
            most_attached: n_places,
            most_trying: MOST_TRYING,
            first_wait_ns: nanoseconds(FIRST_WAIT),
            longest_wait_ns: nanoseconds(LONGEST_WAIT),
            seed,
        };
        let state = State {
            members: Members::new(config),
            known: BTreeMap::new(),
            ids: HashMap::new(),
            next_id: 0,
            places: (0..n_places).map(|_| Place::default()).collect(),
            is_listed: false,
            n_tried: 0,
        };
        Self(Arc::new(Shared {
            pool: pool.clone(),
            delivered: Delivered::default(),
            began: Instant::now(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// What the members have delivered, whatever places they had.
    pub(crate) fn delivered(&self) -> Delivered {
        self.0.delivered.clone()
    }

    /// The source lists these members now.
    pub(crate) fn listed(&self, addresses: &[Address]) {
        let now = self.now();
        let mut state = self.state();
        let ids: Vec<_> = addresses.iter().map(|it| state.id(it)).collect();
        state.members.listed(ids, now);
        state.is_listed = true;
        state.forget();
        drop(state);
        self.0.changed.notify_all();
    }

    /// The source does not say which members there are: nobody need wait for that at the start.
    pub(crate) fn is_not_listed(&self) {
        self.state().is_listed = true;
        self.0.changed.notify_all();
    }

    /// Waits until there is a member for this place to try; `None` where the thread `is_to_end`.
    pub(crate) fn turn(&self, hold: Hold, is_to_end: impl Fn() -> bool) -> Option<Turn> {
        let place = hold.place;
        let mut state = self.state();
        if state.holds(hold) {
            state.places[place].is_idle = true;
        }
        while state.holds(hold) && !is_to_end() {
            let now = self.now();
            if state.offer(now) {
                self.0.changed.notify_all();
            }
            if let Some(id) = state.places[place].offer.take() {
                state.places[place].now = Some(id);
                return state.turn(place, id);
            }
            let wake = state.members.wake_at(now).map_or(u64::MAX, |at| at.since(now));
            // Who ends it wakes all; this is for whoever forgets to.
            let wait =
                Duration::from_nanos(wake).clamp(Duration::from_millis(1), PATIENCE * 10);
            let waited = self.0.changed.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.holds(hold) {
            state.is_vacated(place, self.now());
        }
        None
    }

    /// The member of a place has been reached; whether it is still wanted.
    pub(crate) fn reached(&self, hold: Hold) -> Welcome {
        let (now, place) = (self.now(), hold.place);
        self.change(hold, |state, id| {
            state.n_tried += 1;
            let welcome = state.members.attached(id, now);
            match welcome {
                Welcome::Unwanted => state.places[place].now = None,
                Welcome::Attached => state.says(id, None),
            }
            welcome
        })
        .unwrap_or(Welcome::Unwanted)
    }

    /// The member of a place has not been reached, as `missing` says.
    pub(crate) fn failed(&self, hold: Hold, error: &CsdError, missing: Option<String>) {
        let why = if let CsdError::Busy { retry, .. } = error {
            Failure::Busy(nanoseconds(*retry))
        } else if may_come(error) {
            Failure::Fault
        } else {
            Failure::Mistake
        };
        let now = self.now();
        self.change(hold, |state, id| {
            state.n_tried += 1;
            state.members.failed(id, why, now);
            state.says(id, missing);
            state.places[hold.place].now = None;
        });
    }

    /// The connection to the member of a place is lost, as `missing` says, or has ended after the member
    /// was let go.
    pub(crate) fn lost(&self, hold: Hold, missing: Option<String>) {
        let now = self.now();
        self.change(hold, |state, id| {
            state.members.lost(id, now);
            state.says(id, missing);
            state.places[hold.place].now = None;
        });
    }

    /// `liar`, which had this place, has lied: it is not used any more, nor is anyone that had the place
    /// where the liar is not known. Other places that one of them has now, as [`Self::next_to_leave`].
    pub(crate) fn barred(&self, hold: Hold, liar: Option<&str>) -> Vec<(usize, String)> {
        let place = hold.place;
        let mut state = self.state();
        if !state.holds(hold) {
            return Vec::new();
        }
        let barred = match liar {
            // A member that nobody lists any more is not known.
            Some(liar) => state.ids.get(liar).copied().into_iter().collect(),
            None => state.places[place].before.clone(),
        };
        barred.iter().for_each(|id| state.members.barred(*id));
        let now = Ns(nanoseconds(self.0.began.elapsed()));
        if let Some(id) = state.places[place].now.take().filter(|id| !barred.contains(id))
        {
            // It has done nothing wrong: another place may try it.
            state.members.lost(id, now);
        }
        let elsewhere = barred.iter().filter_map(|id| state.place_of(*id)).collect();
        drop(state);
        self.0.changed.notify_all();
        elsewhere
    }

    /// The members that have a place now.
    pub(crate) fn present(&self) -> Vec<Address> {
        let state = self.state();
        let ids = state.places.iter().filter_map(|place| place.now);
        ids.filter_map(|id| Some(state.known.get(&id)?.address.clone())).collect()
    }

    /// A place whose member is to be let go, and the member.
    pub(crate) fn next_to_leave(&self) -> Option<(usize, String)> {
        let mut state = self.state();
        let id = state.members.next_to_leave()?;
        state.place_of(id)
    }

    /// Whether the member of a place is to go.
    pub(crate) fn is_leaving(&self, hold: Hold) -> bool {
        let state = self.state();
        let now = state.places[hold.place].now.filter(|_| state.holds(hold));
        now.is_some_and(|id| state.members.is_leaving(id))
    }

    /// The hold on a place of the thread that continues with its connection.
    pub(crate) fn hold(&self, place: usize) -> Hold {
        Hold { place, n_cut_off: self.state().places[place].n_cut_off }
    }

    /// No connection has come back from the thread that had this place before, as it has died or did not
    /// end in time: the member is tried again. The hold of the thread that has the place from now on.
    pub(crate) fn is_cut_off(&self, place: usize) -> Hold {
        let now = self.now();
        self.change(self.hold(place), |state, id| {
            state.members.failed(id, Failure::Fault, now);
            state.members.lost(id, now);
            state.places[place].now = None;
        });
        let mut state = self.state();
        state.is_vacated(place, now);
        state.places[place].n_cut_off += 1;
        drop(state);
        self.hold(place)
    }

    /// Has all threads that wait for a member look whether they are to end.
    pub(crate) fn wake_all(&self) {
        self.0.changed.notify_all();
    }

    /// Waits until as many tries have ended as members may be attached; how many are attached. Not beyond
    /// `by`, nor longer than `quiet` after the last try that ended: one that is gone answers nothing, and
    /// whoever is not waited for joins the run later. One that fails twice counts twice.
    pub(crate) fn settles(&self, by: Instant, quiet: Duration) -> u32 {
        let mut state = self.state();
        let (mut told, mut told_at) = ((state.is_listed, state.n_tried), Instant::now());
        loop {
            if told != (state.is_listed, state.n_tried) {
                (told, told_at) = ((state.is_listed, state.n_tried), Instant::now());
            }
            let n_wanted = state.members.n_listed().min(state.places.len());
            let n_tried = usize::try_from(state.n_tried).unwrap_or(usize::MAX);
            let left = by.min(told_at + quiet).saturating_duration_since(Instant::now());
            if state.is_listed && n_tried >= n_wanted || left.is_zero() {
                return state.members.n_attached();
            }
            let waited = self.0.changed.wait_timeout(state, left.min(PATIENCE));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Does something with the member of a place, if it has one, and wakes whoever waits.
    fn change<T>(
        &self,
        hold: Hold,
        change: impl FnOnce(&mut State, MemberId) -> T,
    ) -> Option<T> {
        let mut state = self.state();
        let id = state.places[hold.place].now.filter(|_| state.holds(hold))?;
        let result = change(&mut state, id);
        state.forget();
        drop(state);
        self.0.changed.notify_all();
        Some(result)
    }

    fn now(&self) -> Ns {
        Ns(nanoseconds(self.0.began.elapsed()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The number of the member at this address.
    fn id(&mut self, address: &Address) -> MemberId {
        let next = &mut self.next_id;
        let id = *self.ids.entry(address.to_string()).or_insert_with(|| {
            *next += 1;
            MemberId(*next)
        });
        let new = || Known {
            address: address.clone(),
            suspects: Suspects::default(),
            missing: None,
        };
        self.known.entry(id).or_insert_with(new);
        id
    }

    /// Forgets members that nobody lists and that have no place: names may come and go forever.
    fn forget(&mut self) {
        let members = &self.members;
        self.known.retain(|id, _| members.knows(*id));
        self.ids.retain(|_, id| members.knows(*id));
        for place in &mut self.places {
            place.before.retain(|id| members.knows(*id));
        }
    }

    /// The place that a member has now, and its name.
    fn place_of(&self, id: MemberId) -> Option<(usize, String)> {
        let place = self.places.iter().position(|place| place.now == Some(id))?;
        Some((place, self.known.get(&id)?.address.to_string()))
    }

    fn holds(&self, hold: Hold) -> bool {
        self.places[hold.place].n_cut_off == hold.n_cut_off
    }

    /// Nobody waits at a place for a member any more.
    fn is_vacated(&mut self, place: usize, now: Ns) {
        self.places[place].is_idle = false;
        if let Some(id) = self.places[place].offer.take() {
            // Nobody has tried it: it is as good as it was.
            self.members.failed(id, Failure::Busy(0), now);
        }
    }

    fn says(&mut self, id: MemberId, missing: Option<String>) {
        if let Some(known) = self.known.get_mut(&id) {
            known.missing = missing;
        }
    }

    /// Hands the tries that are due to idle places; whether there was one for any.
    fn offer(&mut self, now: Ns) -> bool {
        let mut has_offered = false;
        while self.places.iter().any(Place::is_free) {
            let Some(id) = self.members.next_to_try(now) else { break };
            let had = |place: &Place| place.is_free() && place.before.last() == Some(&id);
            let fresh = |place: &Place| place.is_free() && place.before.is_empty();
            let places = || self.places.iter();
            let at = places().position(had).or_else(|| places().position(fresh));
            let at = at.or_else(|| places().position(Place::is_free));
            if let Some(at) = at {
                self.places[at].offer = Some(id);
                has_offered = true;
            }
        }
        has_offered
    }

    fn turn(&mut self, at: usize, id: MemberId) -> Option<Turn> {
        let known = self.known.get(&id)?;
        let (address, suspects) = (known.address.clone(), known.suspects.clone());
        let missing = known.missing.clone();
        let place = &mut self.places[at];
        place.is_idle = false;
        let is_known_here = place.before.last().is_none_or(|last| *last == id);
        place.before.retain(|before| *before != id);
        place.before.push(id);
        Some(Turn { address, suspects, missing, is_known_here })
    }
}

impl Place {
    fn is_free(&self) -> bool {
        self.is_idle && self.offer.is_none() && self.now.is_none()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster(members: &str, n_places: u32) -> Roster {
        let pool: Pool = members.parse().unwrap();
        let roster = Roster::new(&pool, n_places, 7);
        let bothends_csd::pool::PoolSource::Listed(listed) = &pool.source else {
            panic!("{pool} is a list")
        };
        roster.listed(listed);
        roster
    }

    fn broken() -> CsdError {
        CsdError::SessionRefused { reason: "no data".to_owned() }
    }

    #[test]
    fn a_liar_is_let_go_where_it_serves_now() {
        let roster = roster("pool://a:7070", 2);
        let (first, second) = (roster.hold(0), roster.hold(1));
        let turn = roster.turn(first, || false).unwrap();
        assert_eq!(roster.reached(first), Welcome::Attached);
        // It has moved, as it may when another place is idle first.
        let mut state = roster.state();
        state.places[1].now = state.places[0].now.take();
        drop(state);
        let liar = turn.address.to_string();
        assert_eq!(roster.barred(first, Some(&liar)), [(1, liar)]);
        roster.lost(second, None);
        let state = roster.state();
        assert_eq!((state.members.n_attached(), state.places[1].now), (0, None));
    }

    #[test]
    fn a_run_does_not_wait_long_for_a_member_that_answers_nothing() {
        let roster = roster("pool://a:7070,b:7070", 2);
        let answers = roster.hold(0);
        roster.turn(answers, || false).unwrap();
        roster.turn(roster.hold(1), || false).unwrap();
        assert_eq!(roster.reached(answers), Welcome::Attached);
        // In an hour the other one might have answered.
        let (began, hour) = (Instant::now(), Duration::from_secs(3600));
        assert_eq!(roster.settles(began + hour, Duration::from_millis(20)), 1);
        assert!(
            began.elapsed() >= Duration::from_millis(20),
            "it might have answered soon"
        );
        roster.failed(roster.hold(1), &broken(), None);
        assert_eq!(roster.settles(Instant::now() + hour, hour), 1, "nobody is left");
    }

    #[test]
    fn a_thread_that_outlives_its_engine_says_nothing_of_the_next_ones_members() {
        let roster = roster("pool://a:7070,b:7070", 1);
        let old = roster.is_cut_off(0);
        roster.turn(old, || false).unwrap();
        let new = roster.is_cut_off(0);
        roster.turn(new, || false).unwrap();
        assert_eq!(roster.reached(old), Welcome::Unwanted);
        assert_eq!(roster.reached(new), Welcome::Attached);
        roster.failed(old, &broken(), Some("it was late".to_owned()));
        roster.lost(old, None);
        roster.barred(old, None);
        assert!(roster.turn(old, || false).is_none());
        assert!(!roster.state().places[0].is_idle);
        assert_eq!(roster.state().members.n_attached(), 1);
        roster.lost(new, None);
        let state = roster.state();
        assert_eq!((state.members.n_attached(), state.places[0].now), (0, None));
    }
}
