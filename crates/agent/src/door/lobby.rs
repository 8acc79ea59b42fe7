//! The lobby of a door: connections that have not said a word, and wait for it without a thread.
//!
//! It accepts nothing and closes none but the oldest; `door.rs` does.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bothends_csd::admission::{ADMISSION_TIMEOUT, MAX_UNADMITTED};
use bothends_csd::listen::Socket;

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

    /// Takes a connection in; the oldest where there are too many.
    pub(super) fn enter(&mut self, socket: Socket, now: Instant) -> Option<Socket> {
        self.silent.push_back((socket, now));
        let is_full = self.silent.len() > MOST_SILENT;
        is_full.then(|| self.silent.pop_front()).flatten().map(|(socket, _)| socket)
    }

    /// Those that have begun to speak, if it is time to look. Some never do, and are closed.
    pub(super) fn speaking(&mut self, now: Instant) -> Vec<Socket> {
        if self.looked.is_some_and(|looked| now.duration_since(looked) < GLANCE) {
            return Vec::new();
        }
        self.looked = Some(now);
        let mut speaking = Vec::new();
        for (socket, since) in std::mem::take(&mut self.silent) {
            if socket.has_spoken() {
                speaking.push(socket);
            } else if now.duration_since(since) < ADMISSION_TIMEOUT {
                self.silent.push_back((socket, since));
            }
        }
        speaking
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Each silent connection had a thread, so ten thousand of them cost a quarter of the machine.
    #[test]
    fn who_says_nothing_waits_without_a_thread_and_leaves_for_the_next() {
        use std::io::Write;
        let (mut lobby, now) = (Lobby::default(), Instant::now());
        let mut hosts = Vec::new();
        let mut come = |lobby: &mut Lobby| {
            let (host, device) = UnixStream::pair().unwrap();
            hosts.push(host);
            lobby.enter(device.into(), now)
        };
        assert!((0..MOST_SILENT).all(|_| come(&mut lobby).is_none()));
        assert!(come(&mut lobby).is_some_and(|oldest| !oldest.has_spoken()));
        assert!(lobby.speaking(now).is_empty());
        (&hosts[7]).write_all(b"BEND").unwrap();
        drop(hosts.remove(3));
        assert!(lobby.speaking(now).is_empty(), "it has just looked");
        assert_eq!(lobby.speaking(now + GLANCE).len(), 2);
        assert_eq!(lobby.silent.len(), MOST_SILENT - 2);
        assert!(lobby.speaking(now + ADMISSION_TIMEOUT).is_empty());
        assert!(lobby.is_empty(), "they had their time");
    }
}
