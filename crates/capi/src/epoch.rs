//! The functions of an epoch. `runtime::Deal` decides which consumer gets which batch.
#![allow(
    unsafe_code,
    reason = "exporting a name of C is unsafe: it may be taken already"
)]
#![allow(non_camel_case_types, reason = "C's names")]

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bothends_runtime::{Dealt, Home, Polled};

use crate::batch::be_batch;
use crate::held::{Form, release};
use crate::memory::given;
use crate::status::{Refusal, answer, be_status, door};

/// As `timeout_ms`: wait forever.
pub const BE_FOREVER: u32 = u32::MAX;

/// How long a wait lasts before it checks whether the epoch was cancelled.
const LOOK: Duration = Duration::from_millis(50);

/// The same while a GPU still uses returned memory, which may be what the wait needs.
const SHORT_LOOK: Duration = Duration::from_millis(1);

/// An epoch that was begun. Each consumer may call from its own thread.
#[derive(Debug)]
pub struct be_epoch {
    home: Home,
    dealt: Dealt,
    consumers: u32,
    form: Arc<Form>,
    is_cancelled: AtomicBool,
}

/// The next batch of `consumer` (from 0), waiting for it no longer than `timeout_ms`
/// milliseconds; 0 does not wait, `BE_FOREVER` has no limit. Returns `BE_BATCH`
/// with the batch in `out`, `BE_PENDING`, `BE_END`, `BE_STOPPED`, or an error, after which the epoch has
/// ended: `BE_ERROR_OPTIONS` if the loader began another epoch meanwhile, or was closed. It goes on after
/// `BE_ERROR_ARGUMENT`, and on a GPU after `BE_ERROR_STARVED`, once a batch has been released.
/// `be_epoch_cancel` ends the wait.
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
        // In a fork, a thread that does not exist there may hold the GPU's locks forever.
        epoch.home.check()?;
        let began = Instant::now();
        let patience = match timeout_ms {
            BE_FOREVER => Duration::MAX,
            milliseconds => Duration::from_millis(milliseconds.into()),
        };
        loop {
            // Only a flag; nothing else is published with it.
            if epoch.is_cancelled.load(Ordering::Relaxed) {
                epoch.dealt.cancel();
                return Ok(be_status::BE_STOPPED);
            }
            let left = patience.saturating_sub(began.elapsed());
            let look = if epoch.form.sweep() { SHORT_LOOK } else { LOOK };
            match epoch.poll(consumer, left.min(look))? {
                Polled::Batch(batch) => {
                    *out = Some(batch);
                    return Ok(be_status::BE_BATCH);
                }
                Polled::End => return Ok(be_status::BE_END),
                Polled::Pending if left > look => {}
                Polled::Pending => return Ok(be_status::BE_PENDING),
            }
        }
    })
}

/// Cancels what is left of the epoch: calls to `be_epoch_next`, current and later ones, return
/// `BE_STOPPED` within a tenth of a second. Any thread or signal handler may call it: it sets a flag
/// and nothing else. NULL is ignored. The loader still knows how far its consumers have come:
/// `be_loader_state` says where to continue. Release the epoch with `be_epoch_close` nevertheless.
#[unsafe(no_mangle)]
pub extern "C" fn be_epoch_cancel(epoch: Option<&be_epoch>) {
    // No `door`: a signal handler may call very little, and nothing here can panic.
    if let Some(epoch) = epoch {
        epoch.is_cancelled.store(true, Ordering::Relaxed);
    }
}

/// Cancels what is left of the epoch and releases it; no thread may be inside `be_epoch_next`.
/// NULL is ignored. The loader still knows how far its consumers have come. Batches of
/// it may be released later.
#[unsafe(no_mangle)]
pub extern "C" fn be_epoch_close(epoch: Option<Box<be_epoch>>) {
    let _ = door(|| {
        if let Some(epoch) = epoch {
            epoch.dealt.cancel();
            release(epoch.home, epoch);
        }
        Ok(())
    });
}

impl be_epoch {
    pub(crate) fn new(dealt: Dealt, consumers: u32, form: Arc<Form>) -> Self {
        let is_cancelled = AtomicBool::new(false);
        Self { home: Home::here(), dealt, consumers, form, is_cancelled }
    }

    fn poll(
        &self,
        consumer: u32,
        patience: Duration,
    ) -> Result<Polled<Box<be_batch>>, Refusal> {
        let (home, form) = (self.home, &self.form);
        let polled = match &self.dealt {
            Dealt::Host(deal) => {
                deal.poll(consumer, patience)?.map(|it| be_batch::new(home, it, form))
            }
            Dealt::Gpu(deal) => {
                deal.poll(consumer, patience)?.map(|it| be_batch::on_gpu(home, it, form))
            }
        };
        Ok(polled.map(Box::new))
    }
}
