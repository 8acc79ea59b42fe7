//! Carries packets between the two devices, each through its line.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::line::{Counts, Line, Ns};

/// Packets taken from one device before the other one has its turn.
const TURN: usize = 64;

/// The link between two devices.
#[derive(Debug)]
pub(crate) struct Link {
    near: File,
    far: File,
    there: Line,
    back: Line,
    begin: Instant,
    faults: Faults,
    packet: Vec<u8>,
}

/// What goes wrong on the link because somebody asked for it.
#[derive(Debug, Default)]
struct Faults {
    out_until: Ns,
    /// Ports at the near end whose packets vanish.
    holes: Vec<u16>,
}

/// What may be asked of a link while it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Order {
    /// This share of the packets is lost.
    Loss(f64),
    /// Nothing passes for so long.
    Outage(Duration),
    /// Nothing of the connection with this port at the near end passes any more.
    Hole(u16),
}

impl Link {
    /// Joins two devices.
    pub(crate) fn new(near: File, far: File, [there, back]: [Line; 2]) -> Self {
        let packet = vec![0; 1 << 16];
        Self {
            near,
            far,
            there,
            back,
            begin: Instant::now(),
            faults: Faults::default(),
            packet,
        }
    }

    /// Carries what there is, then waits until there is more, `others` can be read, or `at_most` is over.
    ///
    /// # Errors
    /// If a device fails.
    pub(crate) fn step(
        &mut self,
        others: &[BorrowedFd<'_>],
        at_most: Duration,
    ) -> io::Result<()> {
        let mut busy = self.take(Side::Near)?;
        busy |= self.take(Side::Far)?;
        let now = self.now();
        let (near, far) = (&mut self.near, &mut self.far);
        // A packet that a device refuses is one more that is lost: TCP will see to it.
        while self.there.deliver(now, |packet| drop(far.write(packet))) {}
        while self.back.deliver(now, |packet| drop(near.write(packet))) {}
        if busy { Ok(()) } else { self.wait(others, at_most) }
    }

    /// Does as asked from now on.
    pub(crate) fn order(&mut self, order: Order) {
        match order {
            Order::Loss(share) => {
                self.there.set_loss(share);
                self.back.set_loss(share);
            }
            Order::Outage(time) => {
                self.faults.out_until = self.now().saturating_add(ns(time));
            }
            Order::Hole(port) => self.faults.holes.push(port),
        }
    }

    /// Near to far, and back.
    pub(crate) fn counts(&self) -> [Counts; 2] {
        [self.there.counts(), self.back.counts()]
    }

    fn now(&self) -> Ns {
        ns(self.begin.elapsed())
    }

    /// Reads some packets of one device; false once it has none.
    fn take(&mut self, side: Side) -> io::Result<bool> {
        for _ in 0..TURN {
            let now = self.now();
            let (device, line) = match side {
                Side::Near => (&mut self.near, &mut self.there),
                Side::Far => (&mut self.far, &mut self.back),
            };
            let len = match device.read(&mut self.packet) {
                Ok(len) => len,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            let packet = &self.packet[..len];
            let port = near_port(packet, side);
            if now < self.faults.out_until
                || port.is_some_and(|p| self.faults.holes.contains(&p))
            {
                line.swallow();
            } else {
                line.offer(now, packet);
            }
        }
        Ok(true)
    }

    fn wait(&self, others: &[BorrowedFd<'_>], at_most: Duration) -> io::Result<()> {
        let due =
            [self.there.next_due(), self.back.next_due()].into_iter().flatten().min();
        let until = due
            .map_or(ns(at_most), |due| due.saturating_sub(self.now()).min(ns(at_most)));
        let fds = [self.near.as_fd(), self.far.as_fd()];
        let fds = fds.into_iter().chain(others.iter().copied());
        let mut fds: Vec<PollFd<'_>> =
            fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match ppoll(&mut fds, Some(TimeSpec::from(Duration::from_nanos(until))), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Side {
    Near,
    Far,
}

/// The near end's port in a packet of TCP or UDP over IPv4.
fn near_port(packet: &[u8], from: Side) -> Option<u16> {
    let first = *packet.first()?;
    let is_tcp_or_udp = matches!(packet.get(9), Some(6 | 17));
    if first >> 4 != 4 || !is_tcp_or_udp {
        return None;
    }
    let header = usize::from(first & 15) * 4;
    let at = match from {
        Side::Near => header,
        Side::Far => header + 2,
    };
    let bytes = packet.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn ns(time: Duration) -> Ns {
    u64::try_from(time.as_nanos()).unwrap_or(Ns::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_near_port_is_the_source_there_and_the_destination_back() {
        let mut packet = [0; 40];
        packet[0] = 0x45;
        packet[9] = 6;
        packet[20..24].copy_from_slice(&[0x1f, 0x90, 0x00, 0x50]);
        assert_eq!(near_port(&packet, Side::Near), Some(8080));
        assert_eq!(near_port(&packet, Side::Far), Some(80));
        packet[9] = 1;
        assert_eq!(near_port(&packet, Side::Near), None, "ICMP has no ports");
        assert_eq!(near_port(&packet[..8], Side::Near), None);
        assert_eq!(near_port(&[0x45; 21], Side::Far), None, "cut short");
    }
}
