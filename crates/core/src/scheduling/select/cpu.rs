//! `cpu`: the host alone, from the front. The baseline of every other strategy.

use crate::ids::{BatchIdx, DeviceIdx};
use crate::select::{Strategy, View};

/// The host alone.
#[derive(Debug)]
pub struct Cpu;

impl Strategy for Cpu {
    fn rescue(&mut self, _: &View<'_>) -> Option<BatchIdx> {
        None
    }

    fn back(&mut self, _: &View<'_>, _: DeviceIdx) -> Option<BatchIdx> {
        None
    }

    fn awaited(&self, view: &View<'_>) -> Option<BatchIdx> {
        view.next()
    }

    /// Batches that are ready behind a lost one wait for it: they do not keep the accelerator busy.
    fn before(&self, view: &View<'_>, batch: BatchIdx) -> u32 {
        view.ledger.unpicked().count_below(batch)
    }
}

#[cfg(test)]
mod tests {
    use crate::epoch::{
        DeviceConfig, EpochConfig, EpochState, FrontConfig, Pick, Recovery, Standing,
    };
    use crate::ids::{BatchIdx, Ns};
    use crate::objective::Objective;
    use crate::select::StrategyConfig;

    const MILLI: u64 = 1_000_000;

    /// Its host must not rest because devices, which make nothing here, could keep the accelerator busy.
    #[test]
    fn with_objective_energy_a_lost_batch_is_made_again_before_what_waits_for_it() {
        let device = DeviceConfig {
            slots: 1,
            buffer: 8,
            prior_ns: Some(1),
            shard: None,
            standing: Standing::Late,
        };
        let mut epoch = EpochState::new(EpochConfig {
            n_batches: 50,
            strategy: StrategyConfig::Cpu,
            objective: Objective::Energy,
            back_quota: None,
            shards: 1,
            front: FrontConfig { parallel: 4, quota: 9, prior_ns: Some(MILLI) },
            devices: vec![device],
            accelerator_ns: None,
            done: vec![],
            recovery: Recovery::On,
        });
        for claim in (0..8).map(|_| epoch.next_front(Ns(0)).unwrap()).collect::<Vec<_>>()
        {
            if claim.batch() == BatchIdx(2) {
                epoch.give_back(claim, Ns(MILLI));
            } else {
                epoch.finish(claim, MILLI, Ns(MILLI));
            }
        }
        for (batch, milli) in [(0, 10), (1, 40)] {
            assert_eq!(
                epoch.next_delivery(Ns(milli * MILLI)),
                Pick::Deliver(BatchIdx(batch))
            );
            epoch.delivered(BatchIdx(batch), Ns(milli * MILLI));
        }
        let now = Ns(41 * MILLI);
        assert_eq!(epoch.next_delivery(now), Pick::Wait);
        assert_eq!(epoch.next_front(now).map(|claim| claim.batch()), Some(BatchIdx(2)));
    }
}
