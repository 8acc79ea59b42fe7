//! What `members.rs` promises, by example and under random histories.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn pool(most_attached: u32, most_trying: u32) -> Members {
    Members::new(MembersConfig { most_attached, most_trying, ..MembersConfig::default() })
}

fn ids(range: std::ops::Range<u64>) -> impl Iterator<Item = MemberId> {
    range.map(MemberId)
}

/// Tries and attaches all that may be.
fn attach_all(members: &mut Members, now: Ns) -> Vec<MemberId> {
    let mut attached = Vec::new();
    while let Some(id) = members.next_to_try(now) {
        assert_eq!(members.attached(id, now), Welcome::Attached);
        attached.push(id);
    }
    attached
}

#[test]
fn no_more_are_tried_and_attached_than_may_be() {
    let mut members = pool(5, 2);
    members.listed(ids(0..100), Ns(0));
    let (one, two) = (members.next_to_try(Ns(0)), members.next_to_try(Ns(0)));
    assert!(one.is_some() && two.is_some() && one != two);
    assert_eq!(members.next_to_try(Ns(0)), None);
    members.failed(one.unwrap(), Failure::Fault, Ns(1));
    members.attached(two.unwrap(), Ns(1));
    assert_eq!(attach_all(&mut members, Ns(2)).len(), 4);
    assert_eq!((members.n_attached(), members.n_listed()), (5, 100));
}

#[test]
fn a_failed_member_waits_longer_each_time_and_never_beyond_the_longest() {
    let mut members = pool(1, 1);
    members.listed(ids(7..8), Ns(0));
    let mut now = Ns(0);
    for nth in 0..40_u32 {
        let id = members.next_to_try(now).expect("it is due");
        members.failed(id, Failure::Fault, now);
        let until = members.wake_at(now).expect("it waits");
        let bound = 30.min(1_u64 << nth.min(5)) * SECOND;
        let wait = until.since(now);
        assert!((bound / 2..=bound).contains(&wait), "{nth}: {wait}");
        assert_eq!(members.next_to_try(Ns(until.0 - 1)), None);
        now = until;
    }
}

#[test]
fn a_busy_member_is_left_alone_for_as_long_as_it_asks_and_a_mistake_for_the_longest() {
    let mut members = pool(1, 1);
    members.listed(ids(0..1), Ns(0));
    for (why, wait) in [
        (Failure::Busy(5 * SECOND), 5),
        (Failure::Busy(0), 1),
        (Failure::Busy(u64::MAX), 30),
        (Failure::Mistake, 30),
    ] {
        let now = members.wake_at(Ns(0)).unwrap();
        let id = members.next_to_try(now).unwrap();
        members.failed(id, why, now);
        assert_eq!(members.wake_at(now), Some(now.plus(wait * SECOND)), "{why:?}");
    }
}

#[test]
fn one_that_vanishes_leaves_and_one_that_comes_back_is_tried_at_once() {
    let mut members = pool(4, 4);
    members.listed(ids(0..2), Ns(0));
    attach_all(&mut members, Ns(0));
    members.listed(ids(1..3), Ns(1));
    assert_eq!(members.next_to_leave(), Some(MemberId(0)));
    assert_eq!(members.next_to_leave(), None, "once");
    assert_eq!(attach_all(&mut members, Ns(1)), [MemberId(2)]);
    members.listed(ids(0..3), Ns(2));
    assert_eq!(members.next_to_try(Ns(2)), None, "it has not finished");
    members.left(MemberId(0), Ns(3));
    assert_eq!(members.next_to_try(Ns(3)), Some(MemberId(0)));
}

#[test]
fn one_that_vanished_while_it_was_tried_is_unwanted() {
    let mut members = pool(4, 4);
    members.listed(ids(0..1), Ns(0));
    let id = members.next_to_try(Ns(0)).unwrap();
    members.listed([], Ns(1));
    assert_eq!(members.attached(id, Ns(2)), Welcome::Unwanted);
    assert!(!members.knows(id));
}

#[test]
fn one_that_has_lied_is_never_tried_again() {
    let mut members = pool(4, 4);
    members.listed(ids(0..1), Ns(0));
    let [id] = attach_all(&mut members, Ns(0))[..] else { panic!("one") };
    members.barred(id);
    for second in 1..100 {
        members.listed([], Ns(second * SECOND));
        members.listed([id], Ns(second * SECOND));
        assert_eq!(members.next_to_try(Ns(second * SECOND)), None);
    }
    assert_eq!(members.n_attached(), 0);
}

#[test]
fn a_fed_consumer_lets_the_newest_go_and_wants_them_again_later() {
    let mut members = pool(8, 8);
    members.listed(ids(0..4), Ns(0));
    let early = attach_all(&mut members, Ns(0));
    members.listed(ids(0..6), Ns(1));
    let late: BTreeSet<_> = attach_all(&mut members, Ns(1)).into_iter().collect();
    members.want(4);
    let mut gone = BTreeSet::new();
    while let Some(id) = members.next_to_leave() {
        members.left(id, Ns(2));
        gone.insert(id);
    }
    assert_eq!(gone, late, "{early:?} stay");
    assert_eq!(members.next_to_try(Ns(3)), None);
    members.want(0);
    assert!(members.next_to_leave().is_some());
    members.want(100);
    assert!(members.next_to_try(Ns(4)).is_some());
}

#[test]
fn hosts_try_the_members_of_a_pool_in_different_orders() {
    let first = |seed| {
        let mut members =
            Members::new(MembersConfig { seed, ..MembersConfig::default() });
        members.listed(ids(0..64), Ns(0));
        members.next_to_try(Ns(0)).unwrap()
    };
    let firsts: BTreeSet<_> = (0..200).map(first).collect();
    assert!(firsts.len() > 40, "{}", firsts.len());
    assert_eq!(first(3), first(3));
}

/// What happens, each a number that says to whom.
#[derive(Debug, Clone)]
enum Event {
    List(u16),
    Try,
    Reach(u8),
    Fail(u8),
    Lose(u8),
    Leave,
    Left(u8),
    Lie(u8),
    Want(u8),
    Pass(u16),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => any::<u16>().prop_map(Event::List),
        4 => Just(Event::Try),
        3 => any::<u8>().prop_map(Event::Reach),
        1 => any::<u8>().prop_map(Event::Fail),
        1 => any::<u8>().prop_map(Event::Lose),
        2 => Just(Event::Leave),
        1 => any::<u8>().prop_map(Event::Left),
        1 => any::<u8>().prop_map(Event::Lie),
        1 => (0_u8..8).prop_map(Event::Want),
        2 => any::<u16>().prop_map(Event::Pass),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    Tried,
    Attached,
    Leaving,
}

/// Own accounts of a pool of at most sixteen members.
struct Accounts {
    members: Members,
    now: Ns,
    listed: BTreeSet<MemberId>,
    is: BTreeMap<MemberId, Is>,
    liars: BTreeSet<MemberId>,
    wanted: u32,
}

impl Accounts {
    fn any(&self, is: Is, which: u8) -> Option<MemberId> {
        let all = self.is.iter().filter(|(_, it)| **it == is);
        let all: Vec<_> = all.map(|(id, _)| *id).collect();
        let at = usize::from(which).checked_rem(all.len())?;
        Some(all[at])
    }

    fn n(&self, is: Is) -> usize {
        self.is.values().filter(|it| **it == is).count()
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::List(bits) => {
                let bits = *bits;
                self.listed = ids(0..16).filter(|id| bits >> id.0 & 1 == 1).collect();
                self.members.listed(self.listed.iter().copied(), self.now);
            }
            Event::Try => self.try_one(),
            Event::Reach(which) => {
                let Some(id) = self.any(Is::Tried, *which) else { return };
                let welcome = self.members.attached(id, self.now);
                let is_wanted = self.listed.contains(&id);
                assert_eq!(welcome == Welcome::Attached, is_wanted);
                self.is.remove(&id);
                if is_wanted {
                    self.is.insert(id, Is::Attached);
                }
            }
            Event::Fail(which) => {
                let Some(id) = self.any(Is::Tried, *which) else { return };
                self.members.failed(id, Failure::Fault, self.now);
                self.is.remove(&id);
            }
            Event::Lose(which) => {
                let Some(id) = self.any(Is::Attached, *which) else { return };
                self.members.lost(id, self.now);
                self.is.remove(&id);
            }
            Event::Leave => self.let_go(),
            Event::Left(which) => {
                let Some(id) = self.any(Is::Leaving, *which) else { return };
                self.members.left(id, self.now);
                self.is.remove(&id);
            }
            Event::Lie(which) => {
                let Some(id) = self.any(Is::Attached, *which) else { return };
                self.members.barred(id);
                self.liars.insert(id);
                self.is.remove(&id);
            }
            Event::Want(n) => {
                self.wanted = u32::from(*n).min(5);
                self.members.want(u32::from(*n));
            }
            Event::Pass(milli) => {
                self.now = self.now.plus(u64::from(*milli) * 1_000_000);
            }
        }
    }

    fn try_one(&mut self) {
        let Some(id) = self.members.next_to_try(self.now) else { return };
        assert!(self.listed.contains(&id), "nobody lists it");
        assert!(!self.liars.contains(&id), "it has lied");
        assert_eq!(self.is.insert(id, Is::Tried), None, "it is tried or attached");
        assert!(self.n(Is::Tried) <= 3);
        let n = u32::try_from(self.n(Is::Tried) + self.n(Is::Attached)).unwrap();
        assert!(n <= self.wanted, "{n} of {}", self.wanted);
    }

    fn let_go(&mut self) {
        let n_attached = u32::try_from(self.n(Is::Attached)).unwrap();
        let Some(id) = self.members.next_to_leave() else {
            let is_well = |(id, is): (&MemberId, &Is)| {
                *is != Is::Attached || self.listed.contains(id)
            };
            assert!(self.is.iter().all(is_well), "one that is not listed stays");
            assert!(n_attached <= self.wanted);
            return;
        };
        assert_eq!(self.is.insert(id, Is::Leaving), Some(Is::Attached));
        assert!(!self.listed.contains(&id) || n_attached > self.wanted);
    }

    /// When all is calm, every honest member that is listed takes part, as far as they are wanted.
    fn end(&mut self) {
        self.happen(&Event::Want(5));
        for _ in 0..64 {
            self.happen(&Event::Leave);
            for is in [Event::Left(0), Event::Try, Event::Reach(0)] {
                self.happen(&is);
            }
            self.now = self.now.plus(31 * SECOND);
        }
        let honest = self.listed.difference(&self.liars).count();
        assert_eq!(self.n(Is::Attached), honest.min(5));
        assert_eq!(self.members.n_attached() as usize, self.n(Is::Attached));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn bounds_hold_and_everybody_takes_part_in_the_end(
        seed: u64, events in prop::collection::vec(event(), 0..60),
    ) {
        let config = MembersConfig {
            most_attached: 5,
            most_trying: 3,
            seed,
            ..MembersConfig::default()
        };
        let mut accounts = Accounts {
            members: Members::new(config),
            now: Ns(0),
            listed: BTreeSet::new(),
            is: BTreeMap::new(),
            liars: BTreeSet::new(),
            wanted: 5,
        };
        for event in &events {
            accounts.happen(event);
            prop_assert_eq!(
                accounts.members.n_attached() as usize, accounts.n(Is::Attached)
            );
        }
        accounts.end();
    }
}
