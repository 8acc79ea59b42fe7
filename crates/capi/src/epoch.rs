//! The epoch's doors. What is dealt to whom is `runtime::Deal`'s.
#![allow(
    unsafe_code,
    reason = "exporting a name of C is unsafe: it may be taken already"
)]
#![allow(non_camel_case_types, reason = "C's names")]

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use bothends_runtime::{Deal, Home, Polled};

use crate::batch::be_batch;
use crate::held::{Form, release};
use crate::memory::given;
use crate::status::{Refusal, answer, be_status, door};

/// As `timeout_ms`: without end.
pub const BE_FOREVER: u32 = u32::MAX;

/// An epoch that was begun. Its consumers may call from threads of their own.
#[derive(Debug)]
pub struct be_epoch {
    home: Home,
    deal: Arc<Deal>,
    consumers: u32,
    form: Arc<Form>,
}

/// The next batch of `consumer` (from 0), waiting for it no longer than `timeout_ms`
/// milliseconds; 0 looks and does not wait, `BE_FOREVER` has no limit. Answers `BE_BATCH`
/// with the batch in `out`, `BE_PENDING`, `BE_END`, or an error, after which the epoch has
/// ended: `BE_ERROR_OPTIONS` where the loader began another epoch meanwhile, or was closed.
/// Release every batch with `be_batch_release`.
#[unsafe(no_mangle)]
pub extern "C" fn be_epoch_next(
    epoch: Option<&be_epoch>,
    consumer: u32,
    timeout_ms: u32,
    out: Option<&mut MaybeUninit<Option<Box<be_batch>>>>,
) -> be_status {
    answer(|| {
        let out = given(out, "out")?.write(None);
        let epoch = given(epoch, "epoch")?;
        if consumer >= epoch.consumers {
            let line = format!(
                "`consumer` is {consumer}; the epoch was begun for {}, counted from 0",
                epoch.consumers
            );
            return Err(Refusal::argument(line));
        }
        let patience = Duration::from_millis(timeout_ms.into());
        loop {
            match epoch.deal.poll(consumer, patience)? {
                Polled::Batch(batch) => {
                    let batch = be_batch::new(epoch.home, batch, &epoch.form);
                    *out = Some(Box::new(batch));
                    return Ok(be_status::BE_BATCH);
                }
                Polled::End => return Ok(be_status::BE_END),
                Polled::Pending if timeout_ms == BE_FOREVER => {}
                Polled::Pending => return Ok(be_status::BE_PENDING),
            }
        }
    })
}

/// Cancels what is left of the epoch and releases it; nobody may be inside `be_epoch_next`.
/// NULL is nothing to do. The loader still knows how far its consumers have come. Batches of
/// it may be released later.
#[unsafe(no_mangle)]
pub extern "C" fn be_epoch_close(epoch: Option<Box<be_epoch>>) {
    let _ = door(|| {
        if let Some(epoch) = epoch {
            epoch.deal.cancel();
            release(epoch.home, epoch);
        }
        Ok(())
    });
}

impl be_epoch {
    pub(crate) fn new(deal: Arc<Deal>, consumers: u32, form: Arc<Form>) -> Self {
        Self { home: Home::here(), deal, consumers, form }
    }
}
