//! Whether the link is what was asked for: its round trip, rate and losses, measured with UDP through it.
//!
//! Another program on the machine makes a packet late, never early, and never changes what the link
//! counts. So the shortest of many round trips counts, and of several bursts the one whose rate comes closest.

use std::io;
use std::net::UdpSocket;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};

use crate::LinkError;
use crate::ends::{End, FAR, NEAR};
use crate::line::Counts;
use crate::options::Options;

/// How far the round trip may be off.
const RTT_SLACK: Duration = Duration::from_millis(2);
/// How far the rate may be off, as a share.
const RATE_SLACK: f64 = 0.05;
const TRIALS: usize = 30;
/// IP's and UDP's headers.
const HEADERS: u64 = 28;
const PROBES: u64 = 2_000;

/// What was measured.
#[derive(Debug)]
pub(crate) struct Measured {
    pub rtt: Duration,
    pub bits_per_s: f64,
    /// Probes that did not arrive, and those the link says that it dropped.
    pub missing: u64,
    pub counted: u64,
}

impl Measured {
    /// What is not as asked, one line each.
    pub(crate) fn complaints(&self, asked: &Options) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.rtt < asked.rtt || self.rtt > asked.rtt + RTT_SLACK {
            complaints
                .push(format!("the round trip is {:?}, not {:?}", self.rtt, asked.rtt));
        }
        #[expect(clippy::cast_precision_loss, reason = "at most 1e11")]
        let ratio = self.bits_per_s / asked.bits_per_s as f64;
        if (ratio - 1.0).abs() > RATE_SLACK {
            complaints.push(format!("the rate is {ratio:.3} of what was asked for"));
        }
        if self.missing != self.counted {
            let (missing, counted) = (self.missing, self.counted);
            complaints.push(format!(
                "{missing} packets are missing and {counted} were counted"
            ));
        }
        complaints
    }
}

/// Measures while another thread carries the packets and keeps `counts` up to date.
pub(crate) fn measure(
    [near, far]: [&End; 2],
    asked: &Options,
    counts: &Mutex<Counts>,
) -> Result<Measured, LinkError> {
    far.enter()?;
    let echo = socket(FAR)?;
    let sink = socket(FAR)?;
    near.enter()?;
    let from = socket(NEAR)?;
    let probe = Probe { from, echo, sink, asked };
    let rtt = probe.rtt()?;
    let bits_per_s = probe.rate()?;
    let before = dropped(counts);
    let missing = probe.missing()?;
    // The counts are written after each step of the link, a moment after the last packet.
    std::thread::sleep(Duration::from_millis(50));
    Ok(Measured { rtt, bits_per_s, missing, counted: dropped(counts) - before })
}

fn dropped(counts: &Mutex<Counts>) -> u64 {
    let counts = counts.lock().map(|counts| *counts).unwrap_or_default();
    counts.lost + counts.overflowed
}

fn socket(address: &str) -> Result<UdpSocket, LinkError> {
    let open = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((address, 0))?;
        setsockopt(&socket, RcvBufForce, &(64 << 20))?;
        Ok(socket)
    };
    open().map_err(LinkError::Probe)
}

/// Sockets at both ends. A socket stays in the namespace in which it was made.
struct Probe<'a> {
    from: UdpSocket,
    echo: UdpSocket,
    sink: UdpSocket,
    asked: &'a Options,
}

impl Probe<'_> {
    /// The shortest of the round trips of single packets.
    fn rtt(&self) -> Result<Duration, LinkError> {
        let patience = self.asked.rtt * 2 + Duration::from_secs(1);
        let once = || -> io::Result<Duration> {
            let mut packet = [0; 64];
            self.echo.set_read_timeout(Some(patience))?;
            self.from.set_read_timeout(Some(patience))?;
            let begin = Instant::now();
            self.from.send_to(&packet, self.echo.local_addr()?)?;
            let (len, back) = self.echo.recv_from(&mut packet)?;
            self.echo.send_to(&packet[..len], back)?;
            self.from.recv_from(&mut packet)?;
            Ok(begin.elapsed())
        };
        let mut best: Option<Duration> = None;
        for _ in 0..TRIALS {
            match once() {
                Ok(rtt) => best = Some(best.map_or(rtt, |best| best.min(rtt))),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(LinkError::Probe(e)),
            }
            if best.is_some_and(|best| best <= self.asked.rtt + RTT_SLACK / 4) {
                break;
            }
        }
        best.ok_or_else(|| LinkError::Probe(io::ErrorKind::TimedOut.into()))
    }

    /// Of several bursts the rate of arrival that is closest to what was asked for, bits a second.
    fn rate(&self) -> Result<f64, LinkError> {
        #[expect(clippy::cast_precision_loss, reason = "at most 1e11")]
        let asked = self.asked.bits_per_s as f64;
        let mut best = f64::INFINITY;
        for _ in 0..TRIALS {
            let rate = self.burst().map_err(LinkError::Probe)?;
            if (rate - asked).abs() < (best - asked).abs() {
                best = rate;
            }
            if (best / asked - 1.0).abs() < RATE_SLACK / 2.0 {
                break;
            }
        }
        Ok(best)
    }

    /// Sends what the link carries in a third of a second, as fast as it goes.
    fn burst(&self) -> io::Result<f64> {
        let packet = vec![1; self.asked.mtu as usize - 28];
        let size = packet.len() as u64 + HEADERS;
        let room = self.asked.bits_per_s / 8 / 3 / size;
        let n_packets = room.min(self.asked.queue_bytes / size).clamp(8, 100_000);
        let to = self.sink.local_addr()?;
        let arrivals = std::thread::scope(|scope| {
            let count = scope.spawn(|| self.arrivals(n_packets));
            for _ in 0..n_packets {
                // A full interface refuses a packet now and then; the link is busy all the same.
                if self.from.send_to(&packet, to).is_err() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            count.join()
        });
        let (n_packets, time) =
            arrivals.map_err(|_| io::Error::other("the counting thread panicked"))??;
        #[expect(clippy::cast_precision_loss, reason = "a burst is small")]
        Ok((n_packets.saturating_sub(1) * size * 8) as f64 / time.as_secs_f64().max(1e-9))
    }

    /// How many packets of a burst arrive, and the time from the first to the last.
    fn arrivals(&self, at_most: u64) -> io::Result<(u64, Duration)> {
        let mut packet = [0; 1 << 16];
        self.sink.set_read_timeout(Some(self.asked.rtt + Duration::from_millis(1000)))?;
        let (mut n_packets, mut first, mut last) = (0, None, Duration::ZERO);
        while n_packets < at_most {
            match self.sink.recv(&mut packet) {
                Ok(_) => n_packets += 1,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
            last = first.get_or_insert_with(Instant::now).elapsed();
            // Those that come after a gap belong to no burst: the rest was lost.
            self.sink.set_read_timeout(Some(Duration::from_millis(500)))?;
        }
        Ok((n_packets, last))
    }

    /// How many of the numbered packets do not arrive.
    fn missing(&self) -> Result<u64, LinkError> {
        self.count_missing().map_err(LinkError::Probe)
    }

    fn count_missing(&self) -> io::Result<u64> {
        let mut packet = [0; 64];
        // Whatever is left of the bursts.
        self.sink.set_read_timeout(Some(self.asked.rtt + Duration::from_millis(100)))?;
        while self.sink.recv(&mut packet).is_ok() {}
        let to = self.sink.local_addr()?;
        for n in 0..PROBES {
            self.from.send_to(&n.to_le_bytes(), to)?;
            if n % 100 == 99 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        self.sink.set_read_timeout(Some(self.asked.rtt + Duration::from_millis(1000)))?;
        let mut arrived = 0;
        while arrived < PROBES && self.sink.recv(&mut packet).is_ok() {
            arrived += 1;
        }
        Ok(PROBES - arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_off_is_said() {
        let asked = Options::default();
        let good = || Measured {
            rtt: Duration::from_micros(151_900),
            bits_per_s: 0.96e9,
            missing: 7,
            counted: 7,
        };
        assert_eq!(good().complaints(&asked), [""; 0]);
        for (wrong, says) in [
            (Measured { rtt: Duration::from_micros(152_100), ..good() }, "round trip"),
            (Measured { rtt: Duration::from_micros(149_900), ..good() }, "round trip"),
            (Measured { bits_per_s: 0.94e9, ..good() }, "rate"),
            (Measured { bits_per_s: 1.06e9, ..good() }, "rate"),
            (
                Measured { counted: 6, ..good() },
                "7 packets are missing and 6 were counted",
            ),
        ] {
            let complaints = wrong.complaints(&asked);
            assert!(
                complaints.len() == 1 && complaints[0].contains(says),
                "{complaints:?}"
            );
        }
    }
}
