//! Audits: the host makes rows of a device's batch again before it is delivered, and all rows of
//! the batches of a device that has lied.
//!
//! Workers do it, a few rows at a time (`make/chores.rs`). Which rows, and what follows from a
//! difference, is decided in `devices/trust.rs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bothends_core::ids::{DeviceIdx, Prong, SampleId};
use bothends_figures::Audits;
use bothends_ops::Damage;
use bothends_slots::{Damaged, HostSlot, Part};

use crate::collect::collector::Command;
use crate::collect::in_flight::Origin;
use crate::devices::trust::{Audit, Begun, Consequence, Verdict};
use crate::error::RuntimeError;
use crate::handover::convert::MOST_RUNS;
use crate::handover::finish::Feed;
use crate::handover::mend::{Bench, Form, Maker};
use crate::read::source::damage_words;
use crate::read::supplied::Unmade;

/// A batch that may be delivered, and who has made it.
#[derive(Debug)]
pub(crate) struct Vouched {
    pub(crate) prong: Prong,
    pub(crate) slot: HostSlot,
    pub(crate) said: Said,
}

/// What whoever made a batch says of its rows, each list rising.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// They could not be made.
    pub(crate) bad: Vec<u32>,
    /// They were made in spite of damage.
    pub(crate) damaged: Vec<Damaged>,
}

impl Said {
    /// Adds what the host has found of rows that it made itself.
    fn add(&mut self, found: Self) {
        self.bad.extend(found.bad);
        self.bad.sort_unstable();
        // The host knows what the damage is.
        self.damaged.splice(0..0, found.damaged);
        self.damaged.sort_by_key(|it| it.row);
        self.damaged.dedup_by_key(|it| it.row);
        self.damaged.retain(|it| self.bad.binary_search(&it.row).is_err());
    }
}

/// A batch of which the host has made rows again.
#[derive(Debug)]
struct Audited {
    slot: HostSlot,
    differing: Option<SampleId>,
    /// What the host has found: rows that the device has made and the host cannot are bad.
    found: Said,
}

/// What the host does with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// It makes the row, too, and compares them.
    Compares,
    /// It makes the row in place of the device's.
    Replaces,
}

/// What came of it.
#[derive(Debug)]
enum Found {
    /// The same bytes; or it is made. In spite of that damage, if any.
    Well(Option<Damage>),
    Differs,
    Unmade(Unmade),
}

/// Rows of a batch, each with its sample.
type Rows = Vec<(u32, SampleId)>;

impl Feed {
    /// The batch, audited where its turn has come, and made again where its device has lied; `None`
    /// when the epoch is cancelled meanwhile.
    ///
    /// # Errors
    /// [`RuntimeError::Untrusted`] where batches that may be wrong have been delivered;
    /// [`RuntimeError::Unreadable`] where the machine fails to read.
    pub(super) fn vouch(
        &self,
        of: Origin,
        (form, slot): (Form, HostSlot),
        samples: &[Option<SampleId>],
        mut said: Said,
    ) -> Result<Option<Vouched>, RuntimeError> {
        let Origin { batch, prong, connection } = of;
        let Prong::Back(device) = prong else {
            return Ok(Some(Vouched { prong, slot, said }));
        };
        let rows: Rows =
            (0..).zip(samples).filter_map(|(row, id)| Some((row, (*id)?))).collect();
        let presence = &self.devices[usize::from(device.0)];
        let mut slot = slot;
        if !presence.is_expelled() {
            let n_rows = u32::try_from(rows.len()).unwrap_or(u32::MAX);
            let begun = Begun { number: self.waits.number(), epoch: self.maker.epoch };
            let audit = presence.trust().audit((begun, batch), n_rows, connection);
            let audited = self.audit((form, slot), &audit, &rows, &said.bad)?;
            let Some(audited) = audited else {
                presence.trust().was_not_compared(&audit, connection);
                return Ok(None);
            };
            slot = audited.slot;
            match audited.differing {
                Some(sample) => self.expel(of, device, sample)?,
                None if presence.trust().passes(&audit, connection)
                    == Verdict::Deliver =>
                {
                    // They are bad samples for whoever makes them.
                    said.add(audited.found);
                    return Ok(Some(Vouched { prong, slot, said }));
                }
                // It has lied in another epoch meanwhile.
                None => {}
            }
        }
        self.made_again(device, (form, slot), rows)
    }

    /// Makes so much of a batch again as is audited; `None` when the epoch is cancelled.
    fn audit(
        &self,
        (form, slot): (Form, HostSlot),
        audit: &Audit,
        rows: &Rows,
        bad: &[u32],
    ) -> Result<Option<Audited>, RuntimeError> {
        let chosen = |row: u32| match audit {
            Audit::Nothing => false,
            Audit::Rows(rows) => rows.binary_search(&row).is_ok(),
            Audit::Everything => true,
        };
        // What the device could not make is made by the host anyway.
        let chosen = |row: &u32| chosen(*row) && bad.binary_search(row).is_err();
        let rows: Rows = rows.iter().copied().filter(|(row, _)| chosen(row)).collect();
        if *audit == Audit::Nothing {
            return Ok(Some(Audited { slot, differing: None, found: Said::default() }));
        }
        let began = Instant::now();
        let Some((slot, found)) = self.again(How::Compares, (form, slot), &rows) else {
            return Ok(None);
        };
        let (mut differing, mut said) = (None, Said::default());
        let mut audits = Audits { batches: 1, ..Audits::default() };
        for ((row, sample), found) in rows.iter().zip(found) {
            match found {
                Found::Well(damage) => said.damaged.extend(damaged(*row, damage)),
                Found::Unmade(Unmade::Machine(failure)) => {
                    return Err(failure.into_error());
                }
                Found::Unmade(Unmade::Bad(_)) => {
                    said.bad.push(*row);
                    continue;
                }
                Found::Differs => {
                    differing = differing.or(Some(*sample));
                    audits.differences += 1;
                }
            }
            audits.samples += 1;
        }
        audits.seconds = began.elapsed().as_secs_f64();
        self.maker.account().audits += audits;
        Ok(Some(Audited { slot, differing, found: said }))
    }

    /// A device has lied: it is no longer used.
    ///
    /// # Errors
    /// [`RuntimeError::Untrusted`] where what it has lied before may have been delivered.
    fn expel(
        &self,
        of: Origin,
        device: DeviceIdx,
        sample: SampleId,
    ) -> Result<(), RuntimeError> {
        let presence = &self.devices[usize::from(device.0)];
        let consequence = presence.trust().lies(of.connection);
        let batch = of.batch.0;
        // Another member of the pool may have its place by now.
        let name = presence.liar().map_or_else(|| presence.name(), |it| it.to_string());
        let why =
            format!("it returned wrong samples (batch {batch}, sample {})", sample.0);
        if consequence == Consequence::Expel {
            presence.is_caught(&name, &why);
        }
        // A collector that is gone has no devices.
        let _ = self.links.commands.send(Command::Expel(device, why));
        self.links.returning.bell().ring();
        match consequence {
            Consequence::Expel => Ok(()),
            Consequence::EndRun { n_doubtful: n_delivered } => {
                let device = name;
                Err(RuntimeError::Untrusted { device, batch, sample, n_delivered })
            }
        }
    }

    /// Makes a whole batch in place of a device; `None` when the epoch is cancelled.
    fn made_again(
        &self,
        device: DeviceIdx,
        (form, slot): (Form, HostSlot),
        rows: Rows,
    ) -> Result<Option<Vouched>, RuntimeError> {
        let Some((slot, found)) = self.again(How::Replaces, (form, slot), &rows) else {
            return Ok(None);
        };
        let mut said = Said::default();
        for ((row, _), found) in rows.iter().zip(found) {
            match found {
                Found::Well(damage) => said.damaged.extend(damaged(*row, damage)),
                // The policy for bad samples is applied to them.
                Found::Differs | Found::Unmade(Unmade::Bad(_)) => said.bad.push(*row),
                Found::Unmade(Unmade::Machine(failure)) => {
                    return Err(failure.into_error());
                }
            }
        }
        self.maker.account().made_again.push(device);
        Ok(Some(Vouched { prong: Prong::Front, slot, said }))
    }

    /// Has the workers make these rows again: the slot, and what came of each. `None` when the epoch
    /// is cancelled, or a thread panicked over it.
    fn again(
        &self,
        how: How,
        (form, slot): (Form, HostSlot),
        rows: &Rows,
    ) -> Option<(HostSlot, Vec<Found>)> {
        let row_bytes = self.maker.row_bytes(form);
        let n_parts = rows.last().map_or(0, |(row, _)| *row as usize + 1);
        let (joiner, parts) = slot.into_parts(row_bytes, n_parts);
        let chosen: BTreeMap<u32, SampleId> = rows.iter().copied().collect();
        let parts = (0..).zip(parts);
        let work = parts.filter_map(|(row, part)| Some((row, *chosen.get(&row)?, part)));
        let mut work: Vec<(u32, SampleId, Part)> = work.collect();
        let n_run = work.len().div_ceil(MOST_RUNS).max(1);
        let found: Arc<Mutex<BTreeMap<u32, Found>>> = Arc::default();
        let mut pieces = Vec::new();
        while !work.is_empty() {
            let run: Vec<_> = work.drain(..n_run.min(work.len())).collect();
            let (maker, found) = (self.maker.clone(), Arc::clone(&found));
            pieces.push(move || {
                let mut bench = Bench::default();
                for (row, sample, mut part) in run {
                    if maker.stop.is_set() {
                        return;
                    }
                    let what = one(&maker, how, sample, (form, &mut part), &mut bench);
                    found
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(row, what);
                }
            });
        }
        self.chores.all(pieces);
        let slot = joiner.join().ok()?;
        let found = Arc::into_inner(found)?.into_inner().ok()?;
        // A row that nobody has finished was not found to be well.
        (found.len() == rows.len()).then(|| (slot, found.into_values().collect()))
    }
}

/// Makes one row.
fn one(
    maker: &Maker,
    how: How,
    sample: SampleId,
    (form, theirs): (Form, &mut [u8]),
    bench: &mut Bench,
) -> Found {
    let made = match how {
        How::Replaces => maker.make(sample, (form, theirs), bench),
        How::Compares => {
            let mut own = vec![0; theirs.len()];
            match maker.make(sample, (form, &mut own), bench) {
                Ok(_) if own != theirs => return Found::Differs,
                made => made,
            }
        }
    };
    made.map_or_else(Found::Unmade, Found::Well)
}

fn damaged(row: u32, damage: Option<Damage>) -> Option<Damaged> {
    damage.map(|damage| Damaged { row, what: Some(damage_words(damage)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_damaged_once_and_the_host_says_how() {
        let odd =
            |row, what: Option<&str>| Damaged { row, what: what.map(str::to_owned) };
        let mut said = Said {
            bad: vec![4],
            damaged: vec![odd(1, None), odd(2, None), odd(3, None)],
        };
        let found =
            Said { bad: vec![2], damaged: vec![odd(0, Some("a")), odd(3, Some("b"))] };
        said.add(found);
        assert_eq!(said.bad, [2, 4]);
        assert_eq!(said.damaged, [odd(0, Some("a")), odd(1, None), odd(3, Some("b"))]);
    }
}
