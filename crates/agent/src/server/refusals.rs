//! What it costs a peer that sessions are refused to it.
//!
//! A recipe and a list of samples are read only to be refused, in time that is in nobody's share of the
//! workers. Some refusals are free: a user corrects a recipe and tries again. Each further one makes the
//! same peer wait twice as long before it may open a session, up to [`MOST_WAIT`], until it has not been
//! refused anything for a while. A peer is a proof and a machine: who shares neither with it waits for nothing,
//! and who shares both with it, such as a host behind the same address, waits no longer than that.
//!
//! It decides and never sleeps; whoever calls holds the lock.

use std::collections::HashMap;
use std::time::Duration;

use bothends_csd::admission::Peer;

use super::openings::MOST_WAIT;

/// Refusals that nobody waits for.
const FREE: u32 = 16;

/// What the first one beyond these costs.
const FIRST_WAIT: Duration = Duration::from_millis(10);

/// Refusals beyond the free ones that are counted: the last one makes the wait as long as it gets.
const MOST_COUNTED: u32 = FREE + 8;

/// One refusal is forgotten in so much time.
const FORGET_NS: u64 = 1_000_000_000;

/// Peers that are told apart. More of them at a time count as one.
const MOST_PEERS: usize = 1024;

/// Who was refused a session lately.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    peers: HashMap<Peer, Count>,
    others: Count,
}

/// Refusals that are not forgotten, as of a time.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    n: u32,
    at_ns: u64,
}

impl Refusals {
    /// For how long a peer that opens a session at `now_ns` waits first.
    pub(crate) fn wait(&self, peer: Peer, now_ns: u64) -> Duration {
        let count = self.peers.get(&peer).unwrap_or(&self.others);
        let n_beyond = count.now(now_ns).n.saturating_sub(FREE);
        match n_beyond.checked_sub(1) {
            None => Duration::ZERO,
            Some(n_doublings) => (FIRST_WAIT * (1 << n_doublings)).min(MOST_WAIT),
        }
    }

    /// A session was refused to this peer.
    pub(crate) fn add(&mut self, peer: Peer, now_ns: u64) {
        if self.peers.len() >= MOST_PEERS && !self.peers.contains_key(&peer) {
            self.peers.retain(|_, count| count.now(now_ns).n > 0);
        }
        let has_room = self.peers.len() < MOST_PEERS || self.peers.contains_key(&peer);
        let count = match has_room {
            true => self.peers.entry(peer).or_default(),
            false => &mut self.others,
        };
        *count = count.now(now_ns);
        count.n = (count.n + 1).min(MOST_COUNTED);
    }
}

impl Count {
    fn now(self, now_ns: u64) -> Self {
        let n_forgotten = now_ns.saturating_sub(self.at_ns) / FORGET_NS;
        let n = self.n.saturating_sub(u32::try_from(n_forgotten).unwrap_or(u32::MAX));
        // What has passed of the next one's time counts, unless there is none.
        let at_ns = match n {
            0 => now_ns,
            _ => self.at_ns + n_forgotten * FORGET_NS,
        };
        Self { n, at_ns }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use bothends_csd::admission::Credential;
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;

    fn peer(number: u32) -> Peer {
        let credential = Some(Credential::of("key", b"a key"));
        Peer::at(credential, Some(IpAddr::from(number.to_be_bytes())))
    }

    fn ns(time: Duration) -> u64 {
        u64::try_from(time.as_nanos()).unwrap()
    }

    #[test]
    fn a_few_refusals_are_free_and_more_cost_more_until_they_are_forgotten() {
        let mut refusals = Refusals::default();
        let mut waits = Vec::new();
        for _ in 0..FREE + 20 {
            waits.push(refusals.wait(peer(1), 0));
            refusals.add(peer(1), 0);
        }
        assert!(waits[..=FREE as usize].iter().all(Duration::is_zero), "{waits:?}");
        assert_eq!(waits[FREE as usize + 1], FIRST_WAIT);
        assert_eq!(waits[FREE as usize + 2], 2 * FIRST_WAIT);
        assert!(waits.is_sorted() && waits.last() == Some(&MOST_WAIT), "{waits:?}");
        assert_eq!(refusals.wait(peer(2), 0), Duration::ZERO, "another machine");
        let other_key = Peer::at(None, Some(IpAddr::from(1_u32.to_be_bytes())));
        assert_eq!(refusals.wait(other_key, 0), Duration::ZERO, "another proof");
        let later = refusals.wait(peer(1), 3 * SECOND);
        assert!(later < MOST_WAIT && !later.is_zero(), "{later:?}");
        // However long the attack was.
        assert_eq!(refusals.wait(peer(1), 9 * SECOND), Duration::ZERO);
    }

    #[test]
    fn peers_without_number_take_bounded_memory_and_make_nobody_free() {
        let mut refusals = Refusals::default();
        for number in 0..5_000 {
            refusals.add(peer(number), 0);
        }
        assert_eq!(refusals.peers.len(), MOST_PEERS);
        assert_eq!(refusals.wait(peer(4_999), 0), MOST_WAIT);
        assert_eq!(refusals.wait(peer(0), 0), Duration::ZERO, "it is known by itself");
        // Once they are forgotten, others are told apart.
        let later_ns = 60 * SECOND;
        refusals.add(peer(200_000), later_ns);
        assert_eq!(refusals.peers.len(), 1);
        assert_eq!(refusals.wait(peer(3), later_ns), Duration::ZERO);
    }

    proptest! {
        /// Connections of one peer that open sessions which are refused, one after the other, without a pause.
        #[test]
        fn a_peer_is_refused_about_once_a_second_on_each_connection(
            n_connections in 1_usize..=64,
            cost_us in 50_u64..=2_000,
        ) {
            let mut refusals = Refusals::default();
            let mut asks_ns = vec![0_u64; n_connections];
            let (seconds, mut n_refused) = (60, 0);
            loop {
                let first = (0..n_connections).min_by_key(|it| asks_ns[*it]).unwrap();
                let now_ns = asks_ns[first];
                if now_ns >= seconds * SECOND {
                    break;
                }
                let wait = refusals.wait(peer(1), now_ns);
                prop_assert!(wait <= MOST_WAIT);
                let done_ns = now_ns + ns(wait) + cost_us * 1_000;
                refusals.add(peer(1), done_ns);
                asks_ns[first] = done_ns;
                n_refused += 1;
            }
            let most = u64::from(MOST_COUNTED) + (n_connections as u64 + 2) * (seconds + 4);
            prop_assert!(n_refused <= most, "{n_refused} > {most}");
        }
    }
}
