//! A mix of data sets as a plan: exact in every batch, every record of a source once in each pass, the
//! same for any number of ranks, and to be resumed at any batch.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};

use bothends_core::ids::{BatchIdx, EpochIdx};
use bothends_core::plan::mix::{Draw, Mix, MixConfig, MixSource, MixStop};
use bothends_core::plan::{LastPolicy, Plan, PlanConfig, Shuffle};
use proptest::prelude::*;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Records and weights of the sources, and what is done with them.
#[derive(Debug, Clone)]
struct Case {
    sources: Vec<(u64, f64)>,
    config: MixConfig,
}

impl Case {
    fn new(sources: &[(u64, f64)], batch_size: u32, stop: MixStop) -> Self {
        let config = MixConfig {
            batch_size,
            stop,
            repeat: 1,
            draw: Draw::Shuffled,
            seed: 7,
            epoch: EpochIdx(0),
        };
        Self { sources: sources.to_vec(), config }
    }

    fn mix(&self) -> Result<Mix, String> {
        let source = |(&(n_records, weight), name)| MixSource { name, n_records, weight };
        let sources: Vec<_> = self.sources.iter().zip(NAMES).map(source).collect();
        Mix::new(self.config, &sources).map_err(|error| error.to_string())
    }

    fn plan(&self, rank: u32, world: u32, start: u64) -> Result<Plan, String> {
        let config = PlanConfig {
            n_samples: 0,
            batch_size: self.config.batch_size,
            shuffle: Shuffle::Full,
            seed: self.config.seed,
            epoch: self.config.epoch,
            rank,
            world,
            last: LastPolicy::Pad,
            consumers: 1,
            start,
            repetitions: 1,
        };
        Plan::mixed(config, self.mix()?).map_err(|error| error.to_string())
    }

    /// The ids of the epoch in the plan's order, over all ranks, from a position on.
    fn ids(&self, world: u32, start: u64) -> Vec<u64> {
        let plans: Vec<_> =
            (0..world).map(|rank| self.plan(rank, world, start).unwrap()).collect();
        let batches = (0..plans[0].n_batches()).map(BatchIdx);
        let rows = batches.flat_map(|batch| plans.iter().map(move |plan| (plan, batch)));
        let ids = rows.flat_map(|(plan, batch)| plan.samples(batch).flatten());
        ids.map(|id| id.0).collect()
    }

    /// The source of an id, and the record in it.
    fn record(&self, id: u64) -> (usize, u64) {
        let all: u64 = self.sources.iter().map(|(n, _)| n).sum();
        let mut record = id % all;
        for (source, (n, _)) in self.sources.iter().enumerate() {
            if record < *n {
                return (source, record);
            }
            record -= n;
        }
        unreachable!("a record is below all of them");
    }

    fn n_batches(&self) -> u32 {
        self.plan(0, 1, 0).unwrap().n_batches()
    }
}

fn batch_counts(case: &Case, ids: &[u64]) -> Vec<u32> {
    let mut counts = vec![0; case.sources.len()];
    ids.iter().for_each(|&id| counts[case.record(id).0] += 1);
    counts
}

#[test]
fn an_epoch_ends_where_the_mix_says() {
    let sources = [(100, 2.0), (30, 1.0)];
    let len = |stop| Case::new(&sources, 12, stop).ids(1, 0).len();
    // Batches of 8 and 4: the second source has records for seven, the first for twelve.
    assert_eq!(len(MixStop::First), 7 * 12);
    assert_eq!(len(MixStop::All), 13 * 12);
    assert_eq!(len(MixStop::Samples(100)), 100);
    let case = Case::new(&sources, 12, MixStop::First);
    let config = MixConfig { repeat: 2, ..case.config };
    let twice = Case { config, ..case };
    assert_eq!(twice.ids(1, 0).len(), 12 * 15, "the second source twice, and no more");
}

#[test]
fn what_is_no_mix_is_refused_with_a_remedy() {
    let line = |sources: &[(u64, f64)], batch_size, stop| {
        Case::new(sources, batch_size, stop).plan(0, 1, 0).unwrap_err()
    };
    let table = [
        (line(&[], 4, MixStop::First), "a mix of 0 data sets; it has 1 to 1024"),
        (line(&[(9, 1.0), (0, 1.0)], 4, MixStop::First), "`b` of the mix has no samples"),
        (
            line(&[(9, 0.0)], 4, MixStop::First),
            "the weight of `a` must be a number above",
        ),
        (line(&[(9, f64::NAN)], 4, MixStop::First), "the weight of `a` must be"),
        (line(&[(9, 1e17), (9, 0.01)], 4, MixStop::First), "round them, as 0.3333"),
        (line(&[(9, 1.0)], 0, MixStop::First), "batch_size is 0"),
        (
            line(&[(90, 1.0), (3, 1.0)], 8, MixStop::First),
            "`b` has 3 samples and one batch takes 4",
        ),
        (line(&[(9, 1.0)], 4, MixStop::Samples(0)), "stops after 0 samples"),
        (line(&[(9, 1.0)], 4, MixStop::Samples(u64::MAX)), "more samples than 2^63"),
        (line(&[(1 << 62, 1.0), (1, 1.0)], 4, MixStop::All), "more samples than 2^63"),
    ];
    for (line, part) in table {
        assert!(line.contains(part), "{line}");
    }
}

/// Computed by a Python program written from `docs/numbers.md`: these numbers are part of what a
/// seed means.
#[test]
fn the_order_of_a_mix_is_fixed() {
    let ids = |case: &Case, draw, seed, epoch| {
        let epoch = EpochIdx(epoch);
        let config = MixConfig { draw, seed, epoch, ..case.config };
        Case { config, ..case.clone() }.ids(1, 0)
    };
    let three = [(10, 3.0), (7, 2.0), (5, 2.0)];
    let case = Case::new(&three, 4, MixStop::Samples(14));
    assert_eq!(
        ids(&case, Draw::Shuffled, 9, 3),
        [7, 20, 10, 9, 8, 41, 36, 37, 3, 34, 40, 1, 42, 6]
    );
    let case = Case::new(&[(10, 5.0), (7, 2.0)], 4, MixStop::First);
    assert_eq!(
        ids(&case, Draw::WithReplacement, 9, 2),
        [14, 22, 4, 34, 58, 28, 70, 92, 44, 64, 125, 109]
    );
    let case = Case::new(&[(10, 2.0), (7, 1.0)], 6, MixStop::First);
    let ids = case.ids(1, 0);
    assert_eq!(ids, [9, 14, 1, 8, 11, 4, 2, 15, 3, 13, 6, 0]);
    let print = case.plan(0, 1, 0).unwrap().fingerprint();
    assert_eq!(print, 0xBE32_C709, "{print:08x}");
}

#[test]
fn a_fingerprint_knows_the_sources_their_weights_and_the_end() {
    let case = Case::new(&[(10, 2.0), (7, 1.0)], 4, MixStop::First);
    let print = |case: &Case| case.plan(0, 1, 0).unwrap().fingerprint();
    let whole = print(&case);
    let doubled = Case { sources: vec![(10, 4.0), (7, 2.0)], ..case.clone() };
    let others = [
        Case { sources: vec![(11, 2.0), (7, 1.0)], ..case.clone() },
        Case { sources: vec![(10, 3.0), (7, 1.0)], ..case.clone() },
        Case { sources: vec![(7, 2.0), (10, 1.0)], ..case.clone() },
        Case { config: MixConfig { stop: MixStop::All, ..case.config }, ..case.clone() },
        Case {
            config: MixConfig { draw: Draw::WithReplacement, ..case.config },
            ..case.clone()
        },
    ];
    assert!(others.iter().all(|other| print(other) != whole));
    let next = Case { config: MixConfig { epoch: EpochIdx(4), ..case.config }, ..case };
    assert_eq!(print(&next), whole, "it is of all epochs");
    assert_eq!(print(&doubled), whole, "2:1 is 4:2");
}

#[test]
fn with_replacement_records_come_again_and_every_sample_has_its_own_id() {
    let case = Case::new(&[(50, 1.0), (20, 1.0)], 10, MixStop::Samples(400));
    let config = MixConfig { draw: Draw::WithReplacement, ..case.config };
    let case = Case { config, ..case };
    let ids = case.ids(1, 0);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 400);
    let mut counts = BTreeMap::<_, u32>::new();
    ids.iter().for_each(|&id| *counts.entry(case.record(id)).or_default() += 1);
    // 200 draws of 50: about 49 are drawn, some of them often.
    let of_first = counts.keys().filter(|(source, _)| *source == 0).count();
    assert!((40..=50).contains(&of_first), "{of_first}");
    assert!(counts.values().any(|&n| n >= 8) && counts.values().any(|&n| n <= 3));
}

#[test]
fn an_epoch_of_its_own_length_goes_on_where_the_last_one_was() {
    let case = Case::new(&[(35, 3.0), (10, 1.0)], 8, MixStop::Samples(24));
    let mut counts = BTreeMap::<_, u32>::new();
    // 18 and 6 in each epoch: after 35 epochs every record has come 18 or 21 times.
    for epoch in 0..35 {
        let config = MixConfig { epoch: EpochIdx(epoch), ..case.config };
        let case = Case { config, ..case.clone() };
        let ids = case.ids(1, 0);
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 24);
        ids.iter().for_each(|&id| *counts.entry(case.record(id)).or_default() += 1);
    }
    let of = |source| counts.iter().filter(move |((s, _), _)| *s == source);
    assert!(of(0).all(|(_, n)| *n == 18), "{counts:?}");
    assert!(of(1).all(|(_, n)| *n == 21), "{counts:?}");
    assert_eq!((of(0).count(), of(1).count()), (35, 10));
}

#[test]
fn unshuffled_sources_count_up() {
    let case = Case::new(&[(4, 1.0), (3, 1.0)], 4, MixStop::All);
    let config = MixConfig { draw: Draw::InOrder, ..case.config };
    let case = Case { config, ..case };
    // The second source begins again: its first record, seven ids on.
    assert_eq!(case.ids(1, 0), [0, 1, 4, 5, 2, 3, 6, 11]);
}

#[test]
fn a_mix_of_millions_is_as_quick_as_one_of_ten() {
    let sources = [(1 << 40, 0.123_456_789), (1 << 33, 0.5), (1, 1e-9)];
    let case = Case::new(&sources, 256, MixStop::All);
    let plan = case.plan(3, 8, (1 << 30) * 8 * 256).unwrap();
    for batch in [0, 1, 1 << 20] {
        assert_eq!(plan.samples(BatchIdx(batch)).flatten().count(), 256);
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let source = (1_u64..300, 1_u32..40);
    let stops = prop_oneof![
        Just(MixStop::First),
        Just(MixStop::All),
        (1_u64..600).prop_map(MixStop::Samples)
    ];
    let sources = prop::collection::vec(source, 1..6);
    (sources, 1_u32..40, stops, any::<u64>(), 0_u32..5).prop_map(
        |(sources, batch_size, stop, seed, epoch)| {
            let sources: Vec<_> =
                sources.into_iter().map(|(n, weight)| (n, f64::from(weight))).collect();
            let case = Case::new(&sources, batch_size, stop);
            let config = MixConfig { seed, epoch: EpochIdx(epoch), ..case.config };
            Case { config, ..case }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_batch_has_its_shares(case in cases()) {
        prop_assume!(case.plan(0, 1, 0).is_ok());
        let total: f64 = case.sources.iter().map(|(_, weight)| weight).sum();
        let size = f64::from(case.config.batch_size);
        let mix = case.mix().unwrap();
        let ids = case.ids(1, 0);
        prop_assume!(ids.len() < 20_000);
        for (nth, batch) in ids.chunks_exact(case.config.batch_size as usize).enumerate() {
            for (source, n) in batch_counts(&case, batch).into_iter().enumerate() {
                prop_assert_eq!(n, mix.share(source, nth as u64));
                let part = size * case.sources[source].1 / total;
                prop_assert!((f64::from(n) - part).abs() < 1.0, "{} of {}", n, part);
            }
        }
    }

    #[test]
    fn every_pass_is_all_of_a_source_and_no_id_comes_twice(case in cases()) {
        prop_assume!(case.plan(0, 1, 0).is_ok());
        let ids = case.ids(1, 0);
        prop_assume!(ids.len() < 20_000);
        prop_assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        // How often each record came: within one of the others of its source, or two where the
        // epoch begins in the middle of a pass and ends in the middle of one.
        let mut counts = BTreeMap::<(usize, u64), u32>::new();
        ids.iter().for_each(|&id| *counts.entry(case.record(id)).or_default() += 1);
        let slack = match case.config.stop {
            MixStop::First | MixStop::All => 1,
            MixStop::Samples(_) => 2,
        };
        for (source, (n, _)) in case.sources.iter().enumerate() {
            let of = |record| counts.get(&(source, record)).copied().unwrap_or(0);
            let all: Vec<u32> = (0..*n).map(of).collect();
            let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
            prop_assert!(most - least <= slack || ids.len() % case.config.batch_size as usize > 0);
            match case.config.stop {
                MixStop::First => prop_assert!(*most <= 1),
                MixStop::All => prop_assert!(*least >= 1),
                MixStop::Samples(_) => {}
            }
        }
    }

    #[test]
    fn ranks_share_the_epoch_and_it_is_resumed_at_every_batch(
        case in cases(),
        worlds in (1_u32..9, 1_u32..9),
    ) {
        prop_assume!(case.plan(0, 1, 0).is_ok());
        let whole = case.ids(1, 0);
        prop_assume!(whole.len() < 4_000);
        prop_assert_eq!(&case.ids(worlds.0, 0), &whole);
        let plan = case.plan(0, worlds.0, 0).unwrap();
        for done in 0..=plan.n_batches().min(20) {
            let start = plan.position_after(done);
            let rest = usize::try_from(start).unwrap();
            prop_assert_eq!(&case.ids(worlds.1, start)[..], &whole[rest..]);
        }
        prop_assert!(case.n_batches() > 0);
    }
}
