//! Members that have announced themselves to registries: each is asked every second, on a thread of its own.
//!
//! The list is that of all registries that have answered lately. A registry that has just started does not know
//! all members yet, so it adds to the list and takes nothing from it. One that is gone, or cut off from the
//! members, takes nothing either: members that this host has stay in the list until their connections are lost.
//! At the start nobody listed is no answer while another registry may know better, or agents may not have
//! announced themselves yet: a run that needs devices would end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bothends_core::setting::Names;
use bothends_csd::address::Address;
use bothends_csd::connect::ConnectOptions;
use bothends_csd::member::{LONGEST_LEASE, MemberList};
use bothends_csd::pool::Pool;
use bothends_csd::registry;
use crossbeam::channel::{Receiver, TryRecvError, bounded};

use super::Asks;
use crate::devices::reach::FIRST_WAIT;
use crate::devices::roster::Roster;
use crate::error::one_line_with;
use crate::runtime::engine::spawn;
use crate::threads::shutdown::Stop;

/// How often a registry is asked, and how long it may take to answer.
const ASK_EVERY: Duration = Duration::from_secs(1);
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// What a registry has said counts for so long.
const FRESH: Duration = Duration::from_secs(5);

/// The registries of a pool.
pub(super) struct Registries {
    each: Vec<Asked>,
    roster: Roster,
    began: Instant,
    /// What was listed last, if anything was.
    listed: Option<Vec<Address>>,
    /// None of them answered when they were asked last.
    is_out: bool,
}

/// What has come of asking one.
struct Asked {
    address: Address,
    pool: Pool,
    options: ConnectOptions,
    names: Names,
    asked: Option<Instant>,
    answer: Option<Receiver<Result<Heard, String>>>,
    last: Option<(Instant, Heard)>,
    failure: Option<String>,
}

/// What one has said.
#[derive(Debug, Clone)]
struct Heard {
    members: Vec<Address>,
    /// It may not know all members yet.
    is_young: bool,
}

impl Heard {
    fn of(list: &MemberList, pool: &Pool) -> Result<Self, String> {
        let is_young = list.age < LONGEST_LEASE;
        pool.members(&list.text).map(|members| Self { members, is_young })
    }
}

impl Registries {
    pub(super) fn new(
        roster: &Roster,
        registries: &[Address],
        (options, names): (&ConnectOptions, Names),
    ) -> Self {
        let options = ConnectOptions { timeout: ANSWER_TIME, ..options.clone() };
        let of = |address: &Address| Asked {
            address: address.clone(),
            pool: roster.pool().clone(),
            options: options.clone(),
            names,
            asked: None,
            answer: None,
            last: None,
            failure: None,
        };
        let each = registries.iter().map(of).collect();
        Self {
            each,
            roster: roster.clone(),
            began: Instant::now(),
            listed: None,
            is_out: false,
        }
    }

    /// The list after an answer has come, where it is news; so it is after none has come for a while.
    fn list(&mut self, now: Instant) -> Option<Vec<Address>> {
        let fresh = self.each.iter().filter_map(|asked| asked.fresh(now));
        let list = merged(
            self.listed.as_deref().unwrap_or_default(),
            &self.roster.present(),
            fresh,
        );
        if self.listed.is_none() && list.is_empty() && self.may_hear_more(now) {
            return None;
        }
        let is_known = self.listed.as_ref() == Some(&list) && !self.is_out;
        self.is_out = false;
        self.listed = Some(list.clone());
        (!is_known).then_some(list)
    }

    /// Whether members that nobody has named yet may be named soon.
    fn may_hear_more(&self, now: Instant) -> bool {
        let is_pending = |asked: &Asked| asked.last.is_none() && asked.failure.is_none();
        let knows_all = |heard: &Heard| !heard.is_young;
        let is_known = || self.each.iter().filter_map(|it| it.fresh(now)).any(knows_all);
        let is_beginning = now.saturating_duration_since(self.began) < FIRST_WAIT;
        is_beginning && (self.each.iter().any(is_pending) || !is_known())
    }

    /// Why there is no list, where none of the registries answers.
    fn outage(&mut self) -> Option<String> {
        let failures = self.each.iter().map(|asked| asked.failure.as_deref());
        let all: Vec<_> = failures.collect::<Option<_>>()?;
        self.is_out = true;
        Some(all.join("; "))
    }
}

impl Asks for Registries {
    fn news(&mut self) -> Result<Option<Vec<Address>>, String> {
        let mut has_answered = false;
        for asked in &mut self.each {
            has_answered |= asked.look()?;
        }
        if has_answered && let Some(list) = self.list(Instant::now()) {
            return Ok(Some(list));
        }
        self.outage().map_or(Ok(None), Err)
    }
}

/// The members, in the order of their addresses: what those say that have answered lately, and what must
/// not be taken away.
fn merged<'a>(
    before: &[Address],
    present: &[Address],
    fresh: impl Iterator<Item = &'a Heard>,
) -> Vec<Address> {
    let mut all = BTreeMap::new();
    let mut is_known = false;
    for heard in fresh {
        is_known |= !heard.is_young;
        all.extend(heard.members.iter().map(|it| (it.to_string(), it.clone())));
    }
    let stays = if is_known { present } else { before };
    for address in present.iter().chain(stays) {
        all.entry(address.to_string()).or_insert_with(|| address.clone());
    }
    all.into_values().collect()
}

impl Asked {
    /// Asks where it is time to; whether there is an answer.
    ///
    /// # Errors
    /// There is no thread for it.
    fn look(&mut self) -> Result<bool, String> {
        let Some(answer) = &self.answer else {
            if self.asked.is_none_or(|at| at.elapsed() >= ASK_EVERY) {
                self.ask()?;
            }
            return Ok(false);
        };
        let answer = match answer.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Empty) => return Ok(false),
            Err(TryRecvError::Disconnected) => {
                Err("the thread that asks a registry has died".to_owned())
            }
        };
        self.answer = None;
        match answer {
            Ok(heard) => {
                self.last = Some((Instant::now(), heard));
                self.failure = None;
                Ok(true)
            }
            Err(why) => {
                self.failure = Some(why);
                Ok(false)
            }
        }
    }

    fn ask(&mut self) -> Result<(), String> {
        let (tell, told) = bounded(1);
        let Self { address, pool, options, names, .. } = self;
        let (address, pool, options) = (address.clone(), pool.clone(), options.clone());
        let names = *names;
        let body = move || {
            let list = registry::members(&address, &options);
            let list = list.map_err(|e| one_line_with(&e, names));
            let heard = list.and_then(|list| Heard::of(&list, &pool));
            // Nobody need wait for it any more.
            let _ = tell.send(heard.map_err(|why| format!("registry {address}: {why}")));
        };
        spawn(&Stop::default(), "registry", body).map_err(|e| e.to_string())?;
        (self.asked, self.answer) = (Some(Instant::now()), Some(told));
        Ok(())
    }

    fn fresh(&self, now: Instant) -> Option<&Heard> {
        let (at, heard) = self.last.as_ref()?;
        (now.saturating_duration_since(*at) < FRESH).then_some(heard)
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::setting::Setting;
    use bothends_csd::pool::PoolSource;

    use super::*;

    fn addresses(hosts: &str) -> Vec<Address> {
        let of = |host: &str| format!("tcp://{host}:1").parse().unwrap();
        hosts.split_whitespace().map(of).collect()
    }

    fn heard(hosts: &str) -> Heard {
        Heard { members: addresses(hosts), is_young: false }
    }

    fn young(hosts: &str) -> Heard {
        Heard { is_young: true, ..heard(hosts) }
    }

    fn list(before: &str, present: &str, fresh: &[Heard]) -> Vec<Address> {
        merged(&addresses(before), &addresses(present), fresh.iter())
    }

    #[test]
    fn the_list_is_that_of_all_registries_that_answer() {
        let both = [heard("a b"), heard("b c")];
        assert_eq!(list("d", "", &both), addresses("a b c"));
        assert_eq!(list("", "", &[heard("")]), []);
    }

    #[test]
    fn no_registry_and_a_new_one_take_nothing_away() {
        assert_eq!(list("a b", "a", &[]), addresses("a b"));
        assert_eq!(list("a b", "", &[young("c")]), addresses("a b c"));
        assert_eq!(list("a b", "", &[young("c"), heard("a")]), addresses("a c"));
    }

    #[test]
    fn a_member_that_serves_stays_whatever_a_registry_has_lost() {
        assert_eq!(list("a b", "b", &[heard("c")]), addresses("b c"));
    }

    fn registries(n: usize) -> Registries {
        let all: Vec<_> = (1..=n).map(|port| format!("r:{port}")).collect();
        let pool: Pool = format!("pool+registry://{}", all.join(",")).parse().unwrap();
        let PoolSource::Registries(all) = &pool.source else { panic!("registries") };
        let options = ConnectOptions::default();
        Registries::new(&Roster::new(&pool, 1, 7), all, (&options, Setting::key))
    }

    /// A run that needs devices ended though the second registry, or the first a second later, had them.
    #[test]
    fn nobody_listed_is_no_answer_while_there_may_be_another() {
        let now = Instant::now();
        let mut two = registries(2);
        two.each[0].last = Some((now, heard("")));
        assert_eq!(two.list(now), None, "the other has not answered");
        two.each[1].last = Some((now, heard("a")));
        assert_eq!(two.list(now), Some(addresses("a")));
        two.each[1].last = Some((now, heard("")));
        assert_eq!(two.list(now), Some(Vec::new()), "once there was a list, all count");
        let mut new = registries(1);
        new.each[0].last = Some((now, young("")));
        assert_eq!(new.list(now), None, "it may not know its members yet");
        let later = new.began + FIRST_WAIT;
        assert_eq!(new.list(later), Some(Vec::new()), "nobody waits longer");
        // Where the other one is gone, there is nothing to wait for.
        let mut half = registries(2);
        half.each[0].last = Some((now, heard("")));
        half.each[1].failure = Some("it is gone".to_owned());
        assert_eq!(half.list(now), Some(Vec::new()));
    }

    /// Nothing was said when they were back, and nothing of the next outage.
    #[test]
    fn the_first_answer_after_an_outage_is_news() {
        let now = Instant::now();
        let mut one = registries(1);
        for _ in 0..2 {
            one.each[0].last = Some((now, heard("a")));
            assert_eq!(one.list(now), Some(addresses("a")));
            assert_eq!((one.list(now), one.outage()), (None, None));
            one.each[0].failure = Some("it is gone".to_owned());
            assert_eq!(one.outage().as_deref(), Some("it is gone"));
            one.each[0].failure = None;
        }
    }

    #[test]
    fn a_list_that_makes_no_sense_is_refused_with_its_line() {
        let pool: Pool = "pool+registry://r:1".parse().unwrap();
        let list = |text: &str, age| {
            Heard::of(&MemberList { age, text: text.to_owned() }, &pool)
        };
        let old = list("tcp://a:1\ntls://b:2", LONGEST_LEASE).unwrap();
        assert!(!old.is_young && old.members.len() == 2);
        assert!(list("", Duration::ZERO).unwrap().is_young);
        let why = list("tcp://a:1\nhttp://b", LONGEST_LEASE).unwrap_err();
        assert!(why.contains("line 2") && why.lines().count() == 1, "{why}");
    }
}
