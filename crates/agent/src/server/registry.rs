//! The members of a pool that have announced themselves to this agent.
//!
//! The list is soft state: it begins empty, an announcement is good for a few seconds, and nothing is kept on disk.
//! It is bounded in members and bytes. A host without a credential, which may be any process of this machine, can
//! announce addresses of this machine alone.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bothends_csd::Address;
use bothends_csd::admission::Credential;
use bothends_csd::listen::Question;
use bothends_csd::member::{Announcement, LONGEST_LEASE, MemberList};
use bothends_csd::pool::{MOST_ADDRESS_BYTES, MOST_MEMBERS};
use bothends_csd::wire::{MAX_LIST_BYTES, Message};

/// Who has announced itself, and until when that is good.
#[derive(Debug)]
pub struct Registry {
    born: Instant,
    members: Mutex<Listed>,
}

#[derive(Debug, Default)]
struct Listed {
    until: HashMap<String, Instant>,
    /// Of the text that lists them all.
    n_bytes: usize,
}

impl Default for Registry {
    fn default() -> Self {
        Self { born: Instant::now(), members: Mutex::default() }
    }
}

impl Registry {
    /// The answer to one that has proved this.
    #[must_use]
    pub fn answer(&self, asked: &Question, credential: Option<Credential>) -> Message {
        let now = Instant::now();
        match asked {
            Question::Announce(told) => match self.announce(told, credential, now) {
                Ok(()) => Message::Announced,
                Err(reason) => Message::Refused { reason },
            },
            Question::Members => Message::Members(self.list(now)),
        }
    }

    /// Members that are listed now.
    #[must_use]
    pub fn n_members(&self) -> usize {
        let mut listed = self.listed();
        listed.forget(Instant::now());
        listed.until.len()
    }

    fn announce(
        &self,
        told: &Announcement,
        credential: Option<Credential>,
        now: Instant,
    ) -> Result<(), String> {
        let Announcement { address, lease } = told;
        let Some((read, line)) = read_address(address) else {
            let address: String = address.escape_debug().take(80).collect();
            return Err(format!("`{address}` is no address of an agent"));
        };
        if credential.is_none() && !is_here(&read) {
            return Err(format!(
                "{read} is not on this machine, and who announces it has proved nothing; use \
                 tcp+noise:// or tls:// for the registry"
            ));
        }
        let until = now + (*lease).min(LONGEST_LEASE);
        self.listed().add(&line, until, now)
    }

    fn list(&self, now: Instant) -> MemberList {
        let mut listed = self.listed();
        listed.forget(now);
        let mut members: Vec<&str> = listed.until.keys().map(String::as_str).collect();
        members.sort_unstable();
        let age = now.saturating_duration_since(self.born);
        MemberList { age, text: members.join("\n") }
    }

    fn listed(&self) -> MutexGuard<'_, Listed> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listed {
    fn add(&mut self, address: &str, until: Instant, now: Instant) -> Result<(), String> {
        if let Some(known) = self.until.get_mut(address) {
            *known = until;
            return Ok(());
        }
        let is_full = |listed: &Self| {
            listed.until.len() >= MOST_MEMBERS
                || listed.n_bytes + address.len() >= MAX_LIST_BYTES as usize
        };
        if is_full(self) {
            self.forget(now);
        }
        if is_full(self) {
            let n = self.until.len();
            return Err(format!("the registry is full: it lists {n} members"));
        }
        self.n_bytes += address.len() + 1;
        self.until.insert(address.to_owned(), until);
        Ok(())
    }

    /// Forgets those that have not been heard of for longer than they said.
    fn forget(&mut self, now: Instant) {
        self.until.retain(|_, until| *until > now);
        self.n_bytes = self.until.keys().map(|address| address.len() + 1).sum();
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
    (is_line && is_same).then_some((read, line))
}

/// Whether only this machine reaches the address.
fn is_here(address: &Address) -> bool {
    match address {
        Address::Tcp { host, .. }
        | Address::Noise { host, .. }
        | Address::Tls { host, .. } => {
            let ip = host.parse::<IpAddr>();
            host == "localhost" || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
        }
        Address::Unix(_) | Address::Spool(_) => true,
        // A drive has no agent that could announce it.
        Address::Nvme(_) | Address::Drive(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LEASE: Duration = Duration::from_secs(6);

    fn told(address: &str) -> Announcement {
        Announcement { address: address.to_owned(), lease: LEASE }
    }

    fn known() -> Option<Credential> {
        Some(Credential::of("key", b"a key"))
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
        let list = |seconds| registry.list(at(seconds)).text;
        assert_eq!(list(5), "tls://a:1\ntls://b:1");
        assert_eq!(list(9), "tls://b:1");
        let last = registry.list(at(11));
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
            " tls://a:1",
            &format!("tls://{}:1", "a".repeat(2000)),
        ] {
            let why = registry.announce(&told(address), known(), registry.born);
            let why = why.expect_err(address);
            assert!(why.contains("no address") && why.lines().count() == 1, "{why}");
        }
        assert_eq!(registry.list(registry.born).text, "");
    }

    #[test]
    fn one_that_has_proved_nothing_announces_this_machine_alone() {
        let registry = Registry::default();
        for address in ["tcp://127.0.0.1:1", "tcp://[::1]:1", "unix:///run/a"] {
            registry.announce(&told(address), None, registry.born).unwrap();
        }
        for address in ["tcp://10.0.0.7:1", "tls://agent:1", "tcp+noise://0.0.0.0:1"] {
            let why = registry.announce(&told(address), None, registry.born);
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
            let why = registry.announce(&told(&of(*n)), None, now);
            why.is_err_and(|why| why.contains("is full"))
        });
        let first = first.unwrap();
        let text = registry.list(now).text;
        assert!(text.len() <= MAX_LIST_BYTES as usize && first > 4000, "{first}");
        // Those that are listed stay so.
        registry.announce(&told(&of(0)), None, now).unwrap();
        registry.announce(&told(&of(first)), None, now + LEASE).unwrap();
        assert_eq!(registry.list(now + LEASE).text, of(first));
    }
}
