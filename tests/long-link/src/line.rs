//! One direction of the link: when a packet comes out at the other end, and whether it does.
//!
//! Pure decisions: the caller says what time it is. A packet waits for the link to be free, takes
//! its time to be sent at the link's rate, and arrives one delay later. Packets that find the queue
//! in front of the link full are dropped, and so is a random share of those that were sent.

use std::collections::VecDeque;

/// Nanoseconds since an instant that the caller chose.
pub(crate) type Ns = u64;

const NS_PER_S: u64 = 1_000_000_000;

/// What one direction does to packets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Direction {
    /// From being sent to arriving.
    pub delay: Ns,
    /// Bits of packets (headers of IP included) sent in a second; at least one.
    pub bits_per_s: u64,
    /// The share of packets that are lost, 0 to 1.
    pub loss: f64,
    /// How many bytes may wait for the link to be free.
    pub queue_bytes: u64,
}

/// What happened to the packets of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Packets that came to the link.
    pub offered: u64,
    /// Packets that arrived.
    pub delivered: u64,
    /// Bytes that arrived.
    pub delivered_bytes: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets that found the queue full.
    pub overflowed: u64,
    /// Packets that fell into an outage or a black hole.
    pub swallowed: u64,
}

/// One direction, and the packets that are on their way in it.
#[derive(Debug)]
pub(crate) struct Line {
    direction: Direction,
    free_at: Ns,
    draws: SplitMix,
    on_the_way: VecDeque<(Ns, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    counts: Counts,
}

impl Line {
    /// A line with nothing on it. Equal seeds lose the same packets of equal traffic.
    pub(crate) fn new(direction: Direction, seed: u64) -> Self {
        Self {
            direction,
            free_at: 0,
            draws: SplitMix(seed),
            on_the_way: VecDeque::new(),
            spare: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Takes a packet that comes at `now`; time never runs backwards.
    pub(crate) fn offer(&mut self, now: Ns, packet: &[u8]) {
        self.counts.offered += 1;
        let len = packet.len() as u64;
        let waits = self.free_at.saturating_sub(now);
        if self.bytes_in(waits).saturating_add(len) > self.direction.queue_bytes {
            self.counts.overflowed += 1;
            return;
        }
        self.free_at = self.free_at.max(now).saturating_add(self.time_of(len));
        // Lost packets have used the link: they are lost after its narrowest place.
        if self.draws.next_share() < self.direction.loss {
            self.counts.lost += 1;
            return;
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(packet);
        let due = self.free_at.saturating_add(self.direction.delay);
        self.on_the_way.push_back((due, copy));
    }

    /// Counts a packet that is not let through at all.
    pub(crate) fn swallow(&mut self) {
        self.counts.offered += 1;
        self.counts.swallowed += 1;
    }

    /// When the next packet arrives.
    pub(crate) fn next_due(&self) -> Option<Ns> {
        self.on_the_way.front().map(|(due, _)| *due)
    }

    /// Hands the next packet that has arrived by `now` to `deliver`; false if there is none.
    pub(crate) fn deliver(&mut self, now: Ns, deliver: impl FnOnce(&[u8])) -> bool {
        if self.next_due().is_none_or(|due| due > now) {
            return false;
        }
        if let Some((_, packet)) = self.on_the_way.pop_front() {
            deliver(&packet);
            self.counts.delivered += 1;
            self.counts.delivered_bytes += packet.len() as u64;
            self.spare.push(packet);
        }
        true
    }

    /// Loses another share of the packets from now on.
    pub(crate) fn set_loss(&mut self, loss: f64) {
        self.direction.loss = loss;
    }

    /// What has happened so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    fn time_of(&self, len: u64) -> Ns {
        let ns = u128::from(len) * 8 * u128::from(NS_PER_S)
            / u128::from(self.direction.bits_per_s);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    fn bytes_in(&self, time: Ns) -> u64 {
        let bytes = u128::from(time) * u128::from(self.direction.bits_per_s)
            / (8 * u128::from(NS_PER_S));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): enough for a coin.
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    /// The next number of at least 0 and below 1.
    fn next_share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // The upper 32 bits: an f64 holds them exactly.
        f64::from(u32::try_from(z >> 32).unwrap_or(u32::MAX))
            / f64::from(u32::MAX).next_up()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: [u8; 1500] = [0; 1500];

    fn direction(loss: f64) -> Direction {
        Direction {
            delay: 75_000_000,
            bits_per_s: 1_000_000_000,
            loss,
            queue_bytes: 1 << 20,
        }
    }

    fn arrivals(line: &mut Line, until: Ns) -> Vec<Ns> {
        let mut arrivals = Vec::new();
        while let Some(due) = line.next_due().filter(|due| *due <= until) {
            assert!(!line.deliver(due - 1, |_| ()), "nothing arrives early");
            assert!(line.deliver(due, |packet| assert_eq!(packet.len(), 1500)));
            arrivals.push(due);
        }
        arrivals
    }

    #[test]
    fn a_packet_takes_its_own_time_and_the_delay() {
        let mut line = Line::new(direction(0.0), 1);
        line.offer(1_000, &PACKET);
        assert_eq!(arrivals(&mut line, Ns::MAX), [1_000 + 12_000 + 75_000_000]);
    }

    #[test]
    fn packets_that_come_at_once_leave_at_the_rate() {
        let mut line = Line::new(direction(0.0), 1);
        for _ in 0..600 {
            line.offer(0, &PACKET);
        }
        let arrivals = arrivals(&mut line, Ns::MAX);
        assert_eq!(arrivals.len(), 600);
        assert!(
            arrivals.windows(2).all(|pair| pair[1] - pair[0] == 12_000),
            "1500 B at 1 Gb/s"
        );
    }

    #[test]
    fn a_full_queue_drops_what_comes_last() {
        let mut line = Line::new(direction(0.0), 1);
        for _ in 0..1_000 {
            line.offer(0, &PACKET);
        }
        let fit = (1 << 20) / 1500;
        let counts = line.counts();
        assert_eq!((counts.offered, counts.overflowed), (1_000, 1_000 - fit));
        // Once the link has sent some there is room again.
        line.offer(12_000 * 10, &PACKET);
        assert_eq!(line.counts().overflowed, counts.overflowed);
    }

    #[test]
    fn equal_seeds_lose_the_same_packets_and_the_share_is_kept() {
        let lost = |seed| {
            let mut line = Line::new(direction(0.01), seed);
            let mut lost = Vec::new();
            for at in 0..100_000_u64 {
                let before = line.counts().lost;
                line.offer(at * 12_000, &PACKET);
                if line.counts().lost > before {
                    lost.push(at);
                }
                line.deliver(Ns::MAX, |_| ());
            }
            lost
        };
        let first = lost(3);
        assert_eq!(first, lost(3));
        assert_ne!(first, lost(4));
        // 1,000 expected, five standard deviations of 31.5.
        assert!((843..=1157).contains(&first.len()), "{}", first.len());
    }
}
