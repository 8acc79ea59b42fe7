//! The members of a pool that have announced themselves to this agent.
//!
//! The list is soft state: it begins empty, an announcement is good for a few seconds, and nothing is kept on disk.
//! It is bounded in members and bytes. A host without a credential, which may be any process of this machine, can
//! announce addresses of this machine alone, and few of them. Addresses that only this machine reaches are announced
//! from it and told to hosts on it: elsewhere the same text is another place.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bothends_csd::Address;
use bothends_csd::admission::Credential;
use bothends_csd::listen::{Admitted, Question};
use bothends_csd::member::{Announcement, LONGEST_LEASE, MemberList};
use bothends_csd::pool::{MOST_ADDRESS_BYTES, MOST_MEMBERS};
use bothends_csd::wire::{MAX_LIST_BYTES, Message};

/// Members at most that were announced by processes that have proved nothing.
const MOST_UNPROVED: usize = 256;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    /// What it has proved.
    pub credential: Option<Credential>,
    /// Whether it is on this machine.
    pub is_here: bool,
}

impl Asker {
    /// The host at the other end of a connection.
    #[must_use]
    pub fn of(host: &Admitted) -> Self {
        Self { credential: host.credential(), is_here: host.is_here() }
    }
}

/// Who has announced itself, and until when that is good.
#[derive(Debug)]
pub struct Registry {
    born: Instant,
    members: Mutex<Listed>,
}

#[derive(Debug, Default)]
struct Listed {
    members: HashMap<String, Member>,
    /// Of the text that lists them all.
    n_bytes: usize,
    /// Of processes that have proved nothing.
    n_unproved: usize,
}

#[derive(Debug, Clone, Copy)]
struct Member {
    until: Instant,
    is_proved: bool,
    reach: Reach,
}

/// Who reaches a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// This machine alone.
    Here,
    /// Others, too.
    Anywhere,
}

impl Default for Registry {
    fn default() -> Self {
        Self { born: Instant::now(), members: Mutex::default() }
    }
}

impl Registry {
    /// The answer to whoever asks.
    #[must_use]
    pub fn answer(&self, asked: &Question, asker: Asker) -> Message {
        let now = Instant::now();
        match asked {
            Question::Announce(told) => match self.announce(told, asker, now) {
                Ok(()) => Message::Announced,
                Err(reason) => Message::Refused { reason },
            },
            Question::Members => Message::Members(self.list(asker, now)),
        }
    }

    /// Members that are listed now.
    #[must_use]
    pub fn n_members(&self) -> usize {
        let mut listed = self.listed();
        listed.forget(Instant::now());
        listed.members.len()
    }

    fn announce(
        &self,
        told: &Announcement,
        asker: Asker,
        now: Instant,
    ) -> Result<(), String> {
        let Announcement { address, lease } = told;
        let Some((read, line)) = read_address(address) else {
            let address: String = address.escape_debug().take(80).collect();
            return Err(format!("`{address}` is not the address of an agent"));
        };
        let (is_proved, is_here) = (asker.credential.is_some(), read.is_of_machine());
        if !is_proved && !is_here {
            return Err(format!(
                "{read} is not on this machine, and the agent that announces it is not \
                authenticated; use \
                 tcp+noise:// or tls:// for the registry"
            ));
        }
        if is_here && !asker.is_here {
            return Err(format!(
                "only its own machine can reach {read}; give the agent an address for others with \
                 --advertise"
            ));
        }
        let until = now + (*lease).min(LONGEST_LEASE);
        let reach = if is_here { Reach::Here } else { Reach::Anywhere };
        self.listed().add(&line, Member { until, is_proved, reach }, now)
    }

    fn list(&self, asker: Asker, now: Instant) -> MemberList {
        let mut listed = self.listed();
        listed.forget(now);
        let reached = listed
            .members
            .iter()
            .filter(|(_, it)| asker.is_here || it.reach == Reach::Anywhere);
        let mut members: Vec<&str> = reached.map(|(line, _)| line.as_str()).collect();
        members.sort_unstable();
        let age = now.saturating_duration_since(self.born);
        MemberList { age, text: members.join("\n") }
    }

    fn listed(&self) -> MutexGuard<'_, Listed> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listed {
    fn add(&mut self, address: &str, new: Member, now: Instant) -> Result<(), String> {
        if let Some(known) = self.members.get_mut(address) {
            // A short lease takes nobody off the list: it need not be of the member itself.
            known.until = known.until.max(new.until);
            if new.is_proved && !known.is_proved {
                known.is_proved = true;
                self.n_unproved -= 1;
            }
            return Ok(());
        }
        let is_crowded =
            |listed: &Self| !new.is_proved && listed.n_unproved >= MOST_UNPROVED;
        let is_full = |listed: &Self| {
            listed.members.len() >= MOST_MEMBERS
                || listed.n_bytes + address.len() >= MAX_LIST_BYTES as usize
        };
        if is_full(self) || is_crowded(self) {
            self.forget(now);
        }
        if is_full(self) {
            let n = self.members.len();
            return Err(format!("the registry is full: it lists {n} members"));
        }
        if is_crowded(self) {
            return Err(format!(
                "the registry is full: it lists {MOST_UNPROVED} members that are not \
                authenticated; use tcp+noise:// or tls:// for the registry"
            ));
        }
        self.n_bytes += address.len() + 1;
        self.n_unproved += usize::from(!new.is_proved);
        self.members.insert(address.to_owned(), new);
        Ok(())
    }

    /// Forgets those that have not been heard of for longer than they said.
    fn forget(&mut self, now: Instant) {
        self.members.retain(|_, it| it.until > now);
        self.n_bytes = self.members.keys().map(|address| address.len() + 1).sum();
        self.n_unproved = self.members.values().filter(|it| !it.is_proved).count();
    }
}

/// An address, and the line that lists it: hosts read the same address from it.
fn read_address(text: &str) -> Option<(Address, String)> {
    let is_short = |text: &str| text.len() <= MOST_ADDRESS_BYTES;
    let read: Address = Some(text).filter(|text| is_short(text))?.parse().ok()?;
    let line = read.to_string();
    // The end of a line ends an address, and a `#` begins a comment.
    let is_line = !line.contains('#') && !line.chars().any(char::is_control);
    let is_line = is_line && is_short(&line) && line.trim() == line;
    let is_same = line.parse::<Address>().is_ok_and(|again| again == read);
    // A drive has no agent that could announce it.
    let is_agent = !matches!(read, Address::Nvme(_) | Address::Drive(_));
    (is_line && is_same && is_agent).then_some((read, line))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LEASE: Duration = Duration::from_secs(6);

    fn told(address: &str) -> Announcement {
        Announcement { address: address.to_owned(), lease: LEASE }
    }

    /// With the key, on this machine.
    fn known() -> Asker {
        let credential = Some(Credential::of("key", b"a key"));
        Asker { credential, is_here: true }
    }

    /// With the key, on another machine.
    fn elsewhere() -> Asker {
        Asker { is_here: false, ..known() }
    }

    /// Any process of this machine.
    fn unproved() -> Asker {
        Asker { credential: None, ..known() }
    }

    #[test]
    fn a_member_is_listed_for_as_long_as_it_says_that_it_is_there() {
        let registry = Registry::default();
        let at = |seconds| registry.born + Duration::from_secs(seconds);
        let announce = |address, seconds| {
            registry.announce(&told(address), known(), at(seconds)).unwrap();
        };
        announce("tls://b:1", 0);
        announce("tls://a:1", 2);
        announce("tls://b:1", 4);
        let list = |seconds| registry.list(known(), at(seconds)).text;
        assert_eq!(list(5), "tls://a:1\ntls://b:1");
        assert_eq!(list(9), "tls://b:1");
        let last = registry.list(known(), at(11));
        assert_eq!((last.age, last.text.as_str()), (Duration::from_secs(11), ""));
        // However long a lease is asked for.
        let lease = Duration::MAX;
        let long = Announcement { lease, ..told("tls://c:1") };
        registry.announce(&long, known(), at(20)).unwrap();
        assert_eq!(list(79), "tls://c:1");
        assert_eq!(list(80), "");
    }

    #[test]
    fn what_is_no_address_is_refused_in_one_line() {
        let registry = Registry::default();
        for address in [
            "",
            "a:1",
            "tls://a",
            "tls://a:1\ntls://b:1",
            "unix:///a#b",
            "unix:///a\n",
            "nvme-tcp://a:4420",
            " tls://a:1",
            &format!("tls://{}:1", "a".repeat(2000)),
        ] {
            let why = registry.announce(&told(address), known(), registry.born);
            let why = why.expect_err(address);
            assert!(why.contains("not the address") && why.lines().count() == 1, "{why}");
        }
        assert_eq!(registry.list(known(), registry.born).text, "");
    }

    #[test]
    fn one_that_has_proved_nothing_announces_this_machine_alone() {
        let registry = Registry::default();
        for address in ["tcp://127.0.0.1:1", "tcp://[::1]:1", "unix:///run/a"] {
            registry.announce(&told(address), unproved(), registry.born).unwrap();
        }
        for address in ["tcp://10.0.0.7:1", "tls://agent:1", "tcp+noise://0.0.0.0:1"] {
            let why = registry.announce(&told(address), unproved(), registry.born);
            assert!(why.unwrap_err().contains("not on this machine"));
            registry.announce(&told(address), known(), registry.born).unwrap();
        }
    }

    #[test]
    fn a_full_registry_refuses_and_makes_room_for_those_that_come_after_the_gone() {
        let registry = Registry::default();
        let now = registry.born;
        let of = |n: usize| format!("unix:///{n:0900}");
        let first = (0..).find(|n| {
            let why = registry.announce(&told(&of(*n)), known(), now);
            why.is_err_and(|why| why.contains("is full"))
        });
        let first = first.unwrap();
        let text = registry.list(known(), now).text;
        assert!(text.len() <= MAX_LIST_BYTES as usize && first > 4000, "{first}");
        // Those that are listed stay so.
        registry.announce(&told(&of(0)), known(), now).unwrap();
        registry.announce(&told(&of(first)), known(), now + LEASE).unwrap();
        assert_eq!(registry.list(known(), now + LEASE).text, of(first));
    }

    /// Hosts elsewhere tried their own ports and folders.
    #[test]
    fn what_only_this_machine_reaches_is_told_on_this_machine_alone() {
        let registry = Registry::default();
        let now = registry.born;
        for address in ["tcp://127.0.0.1:22", "tls://localhost:1", "unix:///run/a"] {
            registry.announce(&told(address), unproved(), now).unwrap();
            let why = registry.announce(&told(address), elsewhere(), now).unwrap_err();
            assert!(why.contains("--advertise"), "{why}");
        }
        registry.announce(&told("tls://a:1"), elsewhere(), now).unwrap();
        assert_eq!(registry.list(elsewhere(), now).text, "tls://a:1");
        assert_eq!(registry.list(unproved(), now).text.lines().count(), 4);
    }

    /// They filled the list, and who had the key was refused.
    #[test]
    fn those_who_have_proved_nothing_leave_room_for_those_who_have() {
        let registry = Registry::default();
        let now = registry.born;
        let of = |n: usize| told(&format!("unix:///run/{n}"));
        for n in 0..MOST_UNPROVED {
            registry.announce(&of(n), unproved(), now).unwrap();
        }
        let why = registry.announce(&of(MOST_UNPROVED), unproved(), now).unwrap_err();
        assert!(why.contains("is full") && why.contains("not authenticated"), "{why}");
        registry.announce(&told("tls://a:1"), elsewhere(), now).unwrap();
        // One that is proved after all is none of them, and the gone are not either.
        registry.announce(&of(0), known(), now).unwrap();
        registry.announce(&of(MOST_UNPROVED), unproved(), now).unwrap();
        registry.announce(&of(MOST_UNPROVED + 1), unproved(), now + LEASE).unwrap();
    }

    #[test]
    fn nobody_takes_another_off_the_list() {
        let registry = Registry::default();
        let now = registry.born;
        registry.announce(&told("tls://a:1"), known(), now).unwrap();
        let none = Announcement { lease: Duration::ZERO, ..told("tls://a:1") };
        registry.announce(&none, elsewhere(), now).unwrap();
        let soon = now + Duration::from_secs(1);
        assert_eq!(registry.list(known(), soon).text, "tls://a:1");
    }
}
