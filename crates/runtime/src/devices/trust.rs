//! How far a device is believed: which of its batches the host makes again, and what follows where
//! one of them is not what the host makes.
//!
//! Which batches these are is drawn from a secret of this process, so that no device can tell, and
//! the stream is the same whatever is drawn. Decides, and makes nothing (`handover/finish/audit.rs`
//! does).

mod members;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_core::rng::Draws;
use bothends_core::sample::SampleKey;

pub(crate) use members::Delivered;

/// Rows of an audited batch that are made again, where not all are: a device that gets one row in
/// ten wrong is found in its first batch, and one in two hundred in some dozens of audits.
pub(crate) const LEAST_ROWS: u32 = 8;

/// The first batches of a connection are audited whatever the rate; of an epoch, as many are drawn where there
/// is a rate.
pub(crate) const FIRST_BATCHES: u32 = 2;

/// Epochs of which it is remembered how many batches were seen: the one that is delivered, the next one,
/// which may have begun, and those before, by which these are measured.
const MOST_EPOCHS: usize = 5;

/// Connections of which is remembered how many of their batches were seen. A batch of an earlier one is
/// audited as a first one is.
const MOST_CONNECTIONS: usize = 64;

/// The draw numbers of what is audited; the key is a secret, so they need only differ.
const OP_BATCH: u32 = 0;
const OP_ROWS: u32 = 1;

/// Whose files a device reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// The host's own.
    HostFiles,
    /// A copy, which may be another one, on a machine that may be another's.
    ItsCopy,
}

/// How much of a batch the host makes again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Audit {
    Nothing,
    /// These rows, rising.
    Rows(Vec<u32>),
    Everything,
}

/// What becomes of a batch of the device's that is next to be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is delivered.
    Deliver,
    /// The device has lied: the host makes it.
    MakeAgain,
}

/// What follows from a batch that is not what the host makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consequence {
    /// Everything delivered so far is known to be right: the host makes the rest.
    Expel,
    /// So many batches were delivered that may be wrong, too: nothing can bring them back.
    EndRun { n_doubtful: u64 },
}

/// What is known of one connection to a device.
#[derive(Debug, Clone)]
struct Connection {
    /// The address of the member of a pool, or the name of the device.
    member: Arc<str>,
    reads: Reads,
    /// Batches of its that were seen.
    n_seen: u64,
}

/// An epoch as it was begun: one of the same index may be begun again, as for each pass over validation data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Begun {
    /// No other epoch of the run has it.
    pub(crate) number: u64,
    pub(crate) epoch: EpochIdx,
}

/// What was seen of the batches of an epoch.
#[derive(Debug, Clone, Copy)]
struct Seen {
    epoch: Begun,
    n: u32,
    /// Those that were drawn to be audited. A connection's first batches are audited besides: whoever
    /// connects again knows of these, and must not know of all.
    n_drawn: u32,
    /// At most so many batches are expected: an epoch that is no longer remembered was as short.
    most: u32,
}

/// What is known of the honesty of one device, or of who has had one place of a pool, in this run.
#[derive(Debug, Clone)]
pub(crate) struct Trust {
    secret: u64,
    percent: u8,
    /// The number of the latest connection.
    latest: u64,
    /// By number: batches are delivered after another connection has been made, perhaps to another member
    /// of a pool, and must not use up its first audits.
    connections: BTreeMap<u64, Connection>,
    /// The latest epochs, in the order in which they began.
    epochs: VecDeque<Seen>,
    /// Of all places of the pool.
    delivered: Delivered,
    /// Who has lied, once a lie was found: nobody where the connection is forgotten.
    liar: Option<Option<Arc<str>>>,
}

impl Trust {
    /// Of a device that has not been heard of: so many percent of its batches are audited. The places
    /// of a pool share what is `delivered`.
    pub(crate) fn new(secret: u64, percent: u8, delivered: Delivered) -> Self {
        Self {
            secret,
            percent: percent.min(100),
            latest: 0,
            connections: BTreeMap::new(),
            epochs: VecDeque::new(),
            delivered,
            liar: None,
        }
    }

    /// This member, or this device, is connected, perhaps again: another program may answer to its
    /// name now.
    pub(crate) fn is_connected(&mut self, member: &str, reads: Reads) {
        self.latest += 1;
        let member = Arc::from(member);
        self.connections.insert(self.latest, Connection { member, reads, n_seen: 0 });
        if self.connections.len() > MOST_CONNECTIONS {
            self.connections.pop_first();
        }
    }

    /// The number of the latest connection.
    pub(crate) fn connection(&self) -> u64 {
        self.latest
    }

    /// How much is to be made again of the next batch, which has so many samples, of this connection.
    pub(crate) fn audit(
        &mut self,
        (epoch, batch): (Begun, BatchIdx),
        n_samples: u32,
        connection: u64,
    ) -> Audit {
        let (mut nth, mut has_copy) = (0, true);
        if let Some(of) = self.connections.get_mut(&connection) {
            (nth, has_copy) = (of.n_seen, of.reads == Reads::ItsCopy);
            of.n_seen += 1;
        }
        let place = self.place_of(epoch);
        let is_drawn = self.draws_batch(place, batch);
        let seen = &mut self.epochs[place];
        seen.n = seen.n.saturating_add(1);
        seen.n_drawn = seen.n_drawn.saturating_add(u32::from(is_drawn));
        if self.percent == 100 || has_copy && nth == 0 {
            return Audit::Everything;
        }
        if is_drawn || has_copy && nth < u64::from(FIRST_BATCHES) {
            return self.draw_rows(epoch, batch, n_samples);
        }
        Audit::Nothing
    }

    /// What an audit of this connection was to compare is not compared after all: its epoch was cancelled
    /// meanwhile. A batch of the connection, perhaps of another epoch, takes its place among the first.
    pub(crate) fn was_not_compared(&mut self, audit: &Audit, connection: u64) {
        if let Some(of) = self.connections.get_mut(&connection) {
            of.n_seen = match audit {
                Audit::Everything => 0,
                Audit::Rows(_) => of.n_seen.min(1),
                Audit::Nothing => of.n_seen,
            };
        }
    }

    /// The epoch with this number was made ahead, and nobody wants it: it is no measure for others.
    pub(crate) fn was_never_wanted(&mut self, number: u64) {
        self.epochs.retain(|seen| seen.epoch.number != number);
    }

    /// A batch of this connection has passed its audit, or had none; it is delivered unless who made it
    /// has lied meanwhile in another epoch, or at another place of the pool.
    pub(crate) fn passes(&mut self, audit: &Audit, connection: u64) -> Verdict {
        if self.has_lied() {
            return Verdict::MakeAgain;
        }
        // A batch of a connection that is forgotten is audited whole.
        if let Some(of) = self.connections.get(&connection) {
            if self.delivered.has_lied(&of.member) {
                return Verdict::MakeAgain;
            }
            if *audit != Audit::Everything {
                self.delivered.doubtful(&of.member);
            }
        }
        Verdict::Deliver
    }

    /// Whether one who had this place has lied.
    pub(crate) fn has_lied(&self) -> bool {
        self.liar.is_some()
    }

    /// The member that has lied, where it is known.
    pub(crate) fn liar(&self) -> Option<Arc<str>> {
        self.liar.clone().flatten()
    }

    /// A batch of this connection is not what the host makes.
    pub(crate) fn lies(&mut self, connection: u64) -> Consequence {
        let liar = self.connections.get(&connection).map(|it| Arc::clone(&it.member));
        let n_doubtful = match &liar {
            Some(liar) => self.delivered.lied(liar),
            None => self.delivered.n_doubtful(),
        };
        self.liar = Some(liar);
        match n_doubtful {
            0 => Consequence::Expel,
            n_doubtful => Consequence::EndRun { n_doubtful },
        }
    }

    /// Where among the latest epochs this one is: at the end, if this is its first batch.
    fn place_of(&mut self, epoch: Begun) -> usize {
        if let Some(place) = self.epochs.iter().position(|seen| seen.epoch == epoch) {
            return place;
        }
        if self.epochs.len() == MOST_EPOCHS
            && let Some(expected) = self.epochs.pop_front().and_then(relied_on)
        {
            // What is expected of an epoch under way must not rise.
            self.epochs.iter_mut().for_each(|seen| seen.most = seen.most.min(expected));
        }
        self.epochs.push_back(Seen { epoch, n: 0, n_drawn: 0, most: u32::MAX });
        self.epochs.len() - 1
    }

    /// Whether the next batch of the epoch at this place is drawn: at the rate at least. While that is
    /// less, two of as many batches as are expected are, each as likely as any other while that stays; batches
    /// beyond them have a chance that falls with their number, so that no part of an epoch is safe to
    /// lie in, however long it is.
    fn draws_batch(&self, place: usize, batch: BatchIdx) -> bool {
        if self.percent == 0 {
            return false;
        }
        let Seen { epoch, n, n_drawn, .. } = self.epochs[place];
        let chance = match self.expected(place).saturating_sub(n) {
            0 => f64::from(FIRST_BATCHES) / f64::from(n.saturating_add(1)),
            left => f64::from(FIRST_BATCHES.saturating_sub(n_drawn)) / f64::from(left),
        };
        let rate = f64::from(self.percent) / 100.0;
        self.draws(epoch, batch, OP_BATCH).uniform() < rate.max(chance)
    }

    /// The batches that the epoch at this place will have, as far as that can be relied on: nine tenths
    /// of those of the shortest of the epochs before it that are remembered, because a device's part is never quite
    /// the same; none in the first epoch. To expect too few, as after an epoch that was stopped or
    /// resumed, costs some audits in the next ones. To expect too many would leave an epoch with less than its
    /// audits: a device that is quick in one epoch must not have few of them in the next, in which it makes less.
    /// The epoch before may still be under way; its batches count as they come.
    fn expected(&self, place: usize) -> u32 {
        let before = self.epochs.range(..place).copied().filter_map(relied_on).min();
        before.map_or(0, |expected| expected.min(self.epochs[place].most))
    }

    /// As large a part of the rows as is audited of the batches, and [`LEAST_ROWS`] at least.
    fn draw_rows(&self, epoch: Begun, batch: BatchIdx, n_samples: u32) -> Audit {
        let part = (u64::from(n_samples) * u64::from(self.percent)).div_ceil(100);
        let n = LEAST_ROWS.max(u32::try_from(part).unwrap_or(u32::MAX));
        if n >= n_samples {
            return Audit::Everything;
        }
        let mut draws = self.draws(epoch, batch, OP_ROWS);
        let mut rows: Vec<u32> = (0..n_samples).collect();
        for at in 0..n {
            let other = at + draws.below(n_samples - at);
            rows.swap(at as usize, other as usize);
        }
        rows.truncate(n as usize);
        rows.sort_unstable();
        Audit::Rows(rows)
    }

    /// Others for each time that an epoch is begun, or a batch of it that was not audited never would be.
    fn draws(&self, epoch: Begun, batch: BatchIdx, op: u32) -> Draws {
        let sample = SampleId(epoch.number << 32 | u64::from(batch.0));
        Draws::new(SampleKey { seed: self.secret, epoch: epoch.epoch, sample }, op)
    }
}

/// How many batches another epoch can be relied on to have, by this one; `None` of a measurement: how long that
/// lasts has nothing to do with an epoch.
fn relied_on(seen: Seen) -> Option<u32> {
    let is_epoch = seen.epoch.epoch != EpochIdx::MEASURED;
    is_epoch.then(|| seen.n - seen.n.div_ceil(10))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MEMBER: &str = "tcp://nas:7070";

    /// What is audited of `n` batches of a device in one epoch.
    fn audits(trust: &mut Trust, epoch: u32, n: u32, n_samples: u32) -> Vec<Audit> {
        let of = trust.connection();
        let audit = |batch| trust.audit((begun(epoch), BatchIdx(batch)), n_samples, of);
        (0..n).map(audit).collect()
    }

    /// An epoch that is begun once.
    fn begun(epoch: u32) -> Begun {
        Begun { number: epoch.into(), epoch: EpochIdx(epoch) }
    }

    fn n_audited(audits: &[Audit]) -> usize {
        audits.iter().filter(|audit| **audit != Audit::Nothing).count()
    }

    fn connected(secret: u64, percent: u8) -> Trust {
        let mut trust = Trust::new(secret, percent, Delivered::default());
        trust.is_connected(MEMBER, Reads::ItsCopy);
        trust
    }

    proptest! {
        #[test]
        fn the_first_batches_of_a_connection_are_audited_whatever_the_rate(
            secret: u64, percent in 0_u8..=100, n_samples in 1_u32..300,
        ) {
            let mut trust = connected(secret, percent);
            for _ in 0..2 {
                let first = audits(&mut trust, 3, 2, n_samples);
                prop_assert_eq!(&first[0], &Audit::Everything);
                prop_assert_ne!(&first[1], &Audit::Nothing);
                trust.is_connected(MEMBER, Reads::ItsCopy);
            }
        }

        #[test]
        fn every_epoch_has_audits_and_every_audit_rows_that_there_are(
            secret: u64, percent in 1_u8..100, n_samples in 1_u32..300, epoch in 0_u32..9,
        ) {
            let mut trust = connected(secret, percent);
            let first = audits(&mut trust, epoch, 5, n_samples);
            prop_assert!(n_audited(&first[..2]) == 2);
            let next = audits(&mut trust, epoch + 1, 40, n_samples);
            prop_assert!(n_audited(&next[..4]) >= 2);
            for audit in next {
                match audit {
                    Audit::Nothing | Audit::Everything => {}
                    Audit::Rows(rows) => {
                        prop_assert!(rows.len() >= LEAST_ROWS as usize);
                        prop_assert!(rows.is_sorted_by(|a, b| a < b));
                        prop_assert!(rows.last().is_some_and(|row| *row < n_samples));
                    }
                }
            }
        }

        /// As long as the epoch before, or nine tenths of it; batches beyond these are few.
        #[test]
        fn later_epochs_have_two_audits_for_certain(secret: u64, n in 3_u32..200) {
            let mut trust = connected(secret, 1);
            audits(&mut trust, 0, n, 64);
            let enough = (n - n.div_ceil(10)) as usize;
            for epoch in 1..5 {
                let later = audits(&mut trust, epoch, n, 64);
                prop_assert!(n_audited(&later[..enough]) >= 2, "{later:?}");
            }
        }

        #[test]
        fn an_epoch_that_begins_before_another_one_ends_has_its_audits(
            secret: u64, n_before in 0_u32..20,
        ) {
            let mut trust = connected(secret, 1);
            audits(&mut trust, 0, 20, 64);
            audits(&mut trust, 1, 20 - n_before, 64);
            let mut next = audits(&mut trust, 2, 1, 64);
            // The rest of the one before.
            let of = trust.connection();
            for batch in 20 - n_before..20 {
                trust.audit((begun(1), BatchIdx(batch)), 64, of);
            }
            let rest = (1..20).map(|at| trust.audit((begun(2), BatchIdx(at)), 64, of));
            next.extend(rest);
            prop_assert!(n_audited(&next) >= 2, "{next:?}");
        }

        /// The host makes all of it again, so a wrong byte is always found before it is
        /// delivered and never ends the run.
        #[test]
        fn where_all_is_audited_no_lie_gets_through(
            secret: u64, n_before in 0_u32..50, n_samples in 1_u32..300,
        ) {
            let mut trust = connected(secret, 100);
            for audit in audits(&mut trust, 0, n_before, n_samples) {
                prop_assert_eq!(&audit, &Audit::Everything);
                prop_assert_eq!(trust.passes(&audit, 1), Verdict::Deliver);
            }
            prop_assert_eq!(trust.lies(1), Consequence::Expel);
            prop_assert_eq!(trust.passes(&Audit::Nothing, 1), Verdict::MakeAgain);
        }

        /// Whatever was audited: a lie ends the run exactly where something was delivered of
        /// which some rows were never looked at.
        #[test]
        fn a_lie_ends_the_run_only_where_something_doubtful_was_delivered(
            secret: u64, percent in 0_u8..100, n_before in 0_u32..50,
        ) {
            let mut trust = connected(secret, percent);
            let before = audits(&mut trust, 0, n_before, 64);
            before.iter().for_each(|audit| {
                trust.passes(audit, 1);
            });
            let doubtful = before.iter().filter(|audit| **audit != Audit::Everything);
            let n_doubtful = doubtful.count() as u64;
            let expected = match n_doubtful {
                0 => Consequence::Expel,
                n_doubtful => Consequence::EndRun { n_doubtful },
            };
            prop_assert_eq!(trust.lies(1), expected);
            // A connection that is made again makes nobody honest.
            trust.is_connected(MEMBER, Reads::ItsCopy);
            prop_assert!(trust.has_lied());
        }
    }

    #[test]
    fn the_rate_is_kept_and_nobody_without_the_secret_can_tell_what_is_audited() {
        let long = |secret| audits(&mut connected(secret, 1), 0, 100_000, 256);
        let (one, other) = (long(1), long(2));
        for audits in [&one, &other] {
            let n = n_audited(audits);
            assert!((900..1150).contains(&n), "{n} of 100,000");
        }
        assert_ne!(one, other);
        let rows: Vec<_> = one.iter().filter(|it| **it != Audit::Nothing).collect();
        assert_ne!(rows[1], rows[2], "other rows of every batch");
    }

    /// How often each batch of the second of two epochs of twenty is audited, with so many secrets;
    /// `connects` comes between the two.
    fn audited_of_second(n_secrets: u32, connects: impl Fn(&mut Trust)) -> Vec<u32> {
        let mut n_audited = vec![0; 20];
        for secret in 0..n_secrets {
            let mut trust = connected(secret.into(), 1);
            audits(&mut trust, 0, 20, 64);
            connects(&mut trust);
            for (n, audit) in n_audited.iter_mut().zip(audits(&mut trust, 1, 20, 64)) {
                *n += u32::from(audit != Audit::Nothing);
            }
        }
        n_audited
    }

    /// Symptom: of the twenty batches that a device has in each short epoch, seven are audited.
    #[test]
    fn a_later_epoch_has_hardly_more_than_two_audits_and_they_are_anywhere() {
        // Two of eighteen are 444 of 4,000; two of twenty, the last one's chance, are 400.
        let n_audited = audited_of_second(4_000, |_| {});
        assert!(n_audited.iter().all(|n| (330..560).contains(n)), "{n_audited:?}");
        let of_all: u32 = n_audited.iter().sum();
        assert!((8_000..10_000).contains(&of_all), "{of_all} of 4,000 epochs");
    }

    #[test]
    fn who_connects_again_does_not_know_the_rest_of_an_epoch_to_be_safe() {
        let connects = |trust: &mut Trust| trust.is_connected(MEMBER, Reads::ItsCopy);
        let n_audited = audited_of_second(4_000, connects);
        assert_eq!(n_audited[..2], [4_000, 4_000]);
        assert!(n_audited[2..].iter().all(|n| (330..560).contains(n)), "{n_audited:?}");
    }

    #[test]
    fn an_epoch_that_is_longer_than_the_one_before_has_no_safe_end() {
        let mut n_late = 0;
        for secret in 0..1_000 {
            let mut trust = connected(secret, 1);
            audits(&mut trust, 0, 20, 64);
            n_late += n_audited(&audits(&mut trust, 1, 60, 64)[20..]);
        }
        // The sum of 2/n from 21 to 60 is 2.2.
        assert!((1_900..2_500).contains(&n_late), "{n_late} of 1,000 epochs");
    }

    #[test]
    fn a_measurement_is_no_measure_for_epochs() {
        for secret in 0..100 {
            let mut trust = connected(secret, 1);
            audits(&mut trust, EpochIdx::MEASURED.0, 500, 64);
            let first = audits(&mut trust, 0, 20, 64);
            assert_eq!(n_audited(&first[..2]), 2);
        }
    }

    #[test]
    fn later_epochs_are_audited_whole_or_not_at_all_where_that_is_asked_for() {
        let (mut none, mut all) = (connected(5, 0), connected(5, 100));
        audits(&mut none, 0, 20, 64);
        audits(&mut all, 0, 20, 64);
        for epoch in 1..4 {
            assert_eq!(n_audited(&audits(&mut none, epoch, 20, 64)), 0);
            let all = audits(&mut all, epoch, 20, 64);
            assert!(all.iter().all(|audit| *audit == Audit::Everything));
        }
    }

    /// Symptom: a pass over validation data, always epoch 0, has audits the first few times only.
    #[test]
    fn an_epoch_that_is_begun_again_has_audits_of_its_own() {
        for secret in 0..200 {
            let mut trust = connected(secret, 1);
            let of = trust.connection();
            for number in 0..12 {
                let epoch = Begun { number, epoch: EpochIdx(0) };
                let pass = (0..20).map(|at| trust.audit((epoch, BatchIdx(at)), 64, of));
                let pass: Vec<_> = pass.collect();
                assert!(n_audited(&pass) >= 2, "pass {number}: {pass:?}");
            }
        }
    }

    /// Symptom: a device makes a thousand batches in one epoch and ten wrong ones in the next, by turns.
    #[test]
    fn who_is_slow_every_other_epoch_has_its_audits() {
        for secret in 0..200 {
            let mut trust = connected(secret, 1);
            audits(&mut trust, 0, 1_000, 64);
            audits(&mut trust, 1, 10, 64);
            audits(&mut trust, 2, 1_000, 64);
            assert!(n_audited(&audits(&mut trust, 3, 10, 64)) >= 2);
        }
    }

    #[test]
    fn a_batch_that_is_not_compared_is_not_a_connections_first() {
        let mut trust = connected(3, 0);
        let of = trust.connection();
        let first = audits(&mut trust, 0, 1, 64);
        assert_eq!(first, [Audit::Everything]);
        // The next epoch has begun when this one is cancelled.
        assert!(matches!(audits(&mut trust, 1, 1, 64)[..], [Audit::Rows(_)]));
        trust.was_not_compared(&first[0], of);
        let next = audits(&mut trust, 1, 2, 64);
        assert_eq!(next[0], Audit::Everything);
        trust.was_not_compared(&next[1], of);
        assert_ne!(audits(&mut trust, 1, 1, 64)[0], Audit::Nothing);
    }

    /// Symptom: each pass over validation data is followed by an epoch that was made ahead for nothing.
    #[test]
    fn an_epoch_that_nobody_wanted_is_no_measure() {
        let mut n_drawn = 0;
        for secret in 0..200 {
            let mut trust = connected(secret, 1);
            let of = trust.connection();
            for number in (0..20).step_by(2) {
                let pass = Begun { number, epoch: EpochIdx(0) };
                let all: Vec<_> =
                    (0..20).map(|at| trust.audit((pass, BatchIdx(at)), 64, of)).collect();
                n_drawn += if number == 0 { 0 } else { n_audited(&all) };
                let ahead = Begun { number: number + 1, epoch: EpochIdx(1) };
                (0..2).for_each(|at| drop(trust.audit((ahead, BatchIdx(at)), 64, of)));
                trust.was_never_wanted(number + 1);
            }
        }
        // Two and a bit in each of nine passes.
        assert!(n_drawn < 3 * 9 * 200, "{n_drawn}");
    }

    #[test]
    fn what_is_forgotten_lets_no_epoch_under_way_expect_more() {
        for secret in 0..200 {
            let mut trust = connected(secret, 1);
            audits(&mut trust, 0, 10, 64);
            (1..4).for_each(|epoch| drop(audits(&mut trust, epoch, 1_000, 64)));
            let mut short = audits(&mut trust, 4, 5, 64);
            // The next one begins, and the first is forgotten.
            audits(&mut trust, 5, 1, 64);
            let of = trust.connection();
            short.extend((5..10).map(|at| trust.audit((begun(4), BatchIdx(at)), 64, of)));
            assert!(n_audited(&short) >= 2, "{short:?}");
        }
    }

    /// What the default costs: the rows that the host makes again, as a part of the device's.
    #[test]
    fn one_percent_of_audits_is_far_less_than_one_percent_of_work() {
        for (n_batches, n_samples) in [(500_u32, 64_u32), (5_000, 64), (1_000, 256)] {
            let audits = audits(&mut connected(7, 1), 0, n_batches, n_samples);
            let n_rows: usize = audits
                .iter()
                .map(|audit| match audit {
                    Audit::Nothing => 0,
                    Audit::Rows(rows) => rows.len(),
                    Audit::Everything => n_samples as usize,
                })
                .sum();
            assert!(n_rows * 100 <= (n_batches * n_samples) as usize, "{n_rows}");
        }
    }

    #[test]
    fn what_is_left_of_one_connection_uses_up_no_audit_of_the_next() {
        let mut trust = connected(3, 0);
        let first = trust.connection();
        trust.is_connected(MEMBER, Reads::ItsCopy);
        let second = trust.connection();
        let mut audit = |batch, of| trust.audit((begun(0), BatchIdx(batch)), 64, of);
        assert_eq!(audit(0, first), Audit::Everything);
        (1..4).for_each(|batch| drop(audit(batch, first)));
        assert_eq!(audit(4, second), Audit::Everything);
        assert_ne!(audit(5, second), Audit::Nothing);
        assert_eq!(audit(6, second), Audit::Nothing);
    }

    #[test]
    fn one_of_this_process_is_audited_at_the_rate_alone() {
        let mut trust = Trust::new(3, 0, Delivered::default());
        trust.is_connected(MEMBER, Reads::HostFiles);
        assert_eq!(n_audited(&audits(&mut trust, 0, 50, 64)), 0);
        let mut copy = connected(3, 0);
        assert_eq!(n_audited(&audits(&mut copy, 0, 50, 64)), 2);
    }

    /// Delivers so many batches of the latest connection, none of which is audited whole.
    fn delivers(trust: &mut Trust, n: u32) {
        let of = trust.connection();
        for _ in 0..n {
            assert_eq!(trust.passes(&Audit::Nothing, of), Verdict::Deliver);
        }
    }

    #[test]
    fn a_newcomer_that_lies_ends_no_run_for_what_others_have_delivered() {
        let delivered = Delivered::default();
        let mut trust = Trust::new(3, 1, delivered);
        trust.is_connected("a", Reads::ItsCopy);
        delivers(&mut trust, 100);
        trust.is_connected("b", Reads::ItsCopy);
        assert_eq!(trust.lies(2), Consequence::Expel);
        assert_eq!(trust.liar().as_deref(), Some("b"));
    }

    #[test]
    fn a_member_is_answerable_for_what_it_delivered_from_another_place() {
        let delivered = Delivered::default();
        let [mut first, mut second] =
            [3, 4].map(|secret| Trust::new(secret, 1, delivered.clone()));
        first.is_connected("a", Reads::ItsCopy);
        delivers(&mut first, 7);
        // It has moved, and its successor is honest.
        second.is_connected("a", Reads::ItsCopy);
        first.is_connected("b", Reads::ItsCopy);
        delivers(&mut first, 5);
        assert_eq!(second.lies(1), Consequence::EndRun { n_doubtful: 7 });
        // What is left of its batches elsewhere is not delivered; its successor's are.
        assert_eq!(first.passes(&Audit::Everything, 1), Verdict::MakeAgain);
        assert_eq!(first.passes(&Audit::Everything, 2), Verdict::Deliver);
    }

    #[test]
    fn where_nobody_knows_who_lied_everybody_is_answerable() {
        let mut trust = connected(3, 1);
        delivers(&mut trust, 2);
        (0..MOST_CONNECTIONS).for_each(|_| trust.is_connected("b", Reads::ItsCopy));
        assert_eq!(trust.lies(1), Consequence::EndRun { n_doubtful: 2 });
        assert_eq!((trust.has_lied(), trust.liar()), (true, None));
    }
}
