//! The lobby of a door: connections that have not said a word, and wait for it without a thread.
//!
//! It says who leaves it and why, with one call of the system for all of them; it accepts nothing and
//! closes none. `door.rs` does.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bothends_csd::admission::{ADMISSION_TIMEOUT, MAX_UNADMITTED};
use bothends_csd::listen::{Socket, have_spoken};

/// How often it looks whether somebody in the lobby has begun to speak.
pub(super) const GLANCE: Duration = Duration::from_millis(5);

/// Connections that may be silent with a thread of their own, and as many without one.
pub(super) const MOST_SILENT: usize = MAX_UNADMITTED / 2;

/// Connections that are taken in each [`GLANCE`] while as many are silent as may be: at most 2,200 a second. Each of
/// ten thousand that were opened again when they were closed cost an accept and a close as often as the agent was quick
/// enough, a tenth of what it had for its hosts. This way one is silent for 15 ms before another has its place, and a
/// host that comes last of the 4,096 that the kernel lets wait at a Unix socket is heard within its two seconds.
pub(super) const MOST_AT_ONCE: usize = 11;

/// Connections that have no thread because they have not said a word, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Lobby {
    pub(super) silent: VecDeque<(Socket, Instant)>,
    looked: Option<Instant>,
}

impl Lobby {
    pub(super) fn is_empty(&self) -> bool {
        self.silent.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.silent.len() >= MOST_SILENT
    }

    /// Takes a connection in. At the next look the oldest goes where there are too many.
    pub(super) fn enter(&mut self, socket: Socket, now: Instant) {
        self.silent.push_back((socket, now));
    }

    /// Looks at all of them with one call of the system, if it is time to look.
    pub(super) fn look(&mut self, now: Instant) -> Look {
        let mut look = Look::default();
        if self.looked.is_some_and(|looked| now.duration_since(looked) < GLANCE) {
            return look;
        }
        self.looked = Some(now);
        let spoken = have_spoken(self.silent.iter().map(|(socket, _)| socket));
        // Once round, in place: who stays keeps its turn.
        for speaks in spoken {
            let Some((socket, since)) = self.silent.pop_front() else { break };
            if speaks {
                look.speaking.push(socket);
            } else if now.duration_since(since) >= ADMISSION_TIMEOUT {
                look.late.push(socket);
            } else {
                self.silent.push_back((socket, since));
            }
        }
        // All of these were silent a moment ago.
        let n_beyond = self.silent.len().saturating_sub(MOST_SILENT);
        look.crowded.extend(self.silent.drain(..n_beyond).map(|(socket, _)| socket));
        look
    }
}

/// What a look at a lobby shows: connections that leave it.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// They have begun to speak.
    pub(super) speaking: Vec<Socket>,
    /// The oldest of too many.
    pub(super) crowded: Vec<Socket>,
    /// They have had their time.
    pub(super) late: Vec<Socket>,
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Each silent connection had a thread, so ten thousand of them cost a quarter of the machine.
    #[test]
    fn who_says_nothing_waits_without_a_thread_and_leaves_for_the_next() {
        use std::io::{Read, Write};
        let (mut lobby, now) = (Lobby::default(), Instant::now());
        let mut hosts = Vec::new();
        for _ in 0..MOST_SILENT + 2 {
            let (host, device) = UnixStream::pair().unwrap();
            hosts.push(host);
            lobby.enter(device.into(), now);
        }
        // The oldest goes, and one that has spoken never does.
        (&hosts[0]).write_all(b"BEND").unwrap();
        let seen =
            |look: Look| [look.speaking.len(), look.crowded.len(), look.late.len()];
        assert_eq!(seen(lobby.look(now)), [1, 1, 0]);
        assert_eq!((&hosts[1]).read(&mut [0]).unwrap(), 0, "the second is the oldest");
        (&hosts[7]).write_all(b"BEND").unwrap();
        drop(hosts.remove(3));
        assert_eq!(seen(lobby.look(now)), [0, 0, 0], "it has just looked");
        assert_eq!(seen(lobby.look(now + GLANCE)), [2, 0, 0]);
        assert_eq!(lobby.silent.len(), MOST_SILENT - 2);
        let late = lobby.look(now + ADMISSION_TIMEOUT);
        assert_eq!(seen(late), [0, 0, MOST_SILENT - 2], "they had their time");
        assert!(lobby.is_empty());
    }
}
