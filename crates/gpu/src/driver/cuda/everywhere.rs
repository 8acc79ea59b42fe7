//! The end of everything that a process has enqueued, on all of its devices.
//!
//! Pinned memory is the whole process's: a copy out of it may be under way to any device that some
//! library uses, which is one whose primary context is active. Each of these records the end of its work, and
//! a stream of our device waits for them; so one event of ours is behind all.
#![allow(unsafe_code, reason = "hands contexts and events to a foreign library")]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use super::calls::{Api, Called};

/// What is needed for that, made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Everywhere(Mutex<Others>);

#[derive(Debug, Default)]
struct Others {
    /// The contexts of other devices that were seen in use, retained for good.
    contexts: BTreeMap<c_int, u64>,
    /// A stream of our own context, on which they are waited for.
    gathering: Option<u64>,
}

impl Everywhere {
    /// Has work of our context, which is current and `own`'s, wait for what all others have now; then moves
    /// `event` behind everything of ours.
    ///
    /// # Safety
    /// The event and the context are alive.
    pub(super) unsafe fn record(
        &self,
        api: Api,
        own: (c_int, u64),
        event: u64,
    ) -> Called<()> {
        let mut others = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        others.look(api, own.0)?;
        let contexts: Vec<u64> = others.contexts.values().copied().collect();
        for context in contexts {
            let gathering = others.gathering(api)?;
            // SAFETY: both contexts are retained, and the stream is ours.
            unsafe { waits_for(api, (own.1, gathering), context) }?;
        }
        // SAFETY: the caller's promise.
        unsafe { api.record_context(event, own.1) }
    }

    /// Gives the stream back.
    ///
    /// # Safety
    /// Our context is current, or nothing was made.
    pub(super) unsafe fn end(&mut self, api: Api) {
        let others = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = others.gathering.take() {
            // SAFETY: made by `gathering`, destroyed once; work on it still runs.
            let _ = unsafe { api.destroy_stream(stream) };
        }
    }
}

impl Others {
    /// Retains the contexts of devices that are in use by now.
    fn look(&mut self, api: Api, own: c_int) -> Called<()> {
        for ordinal in 0..api.n_devices()? {
            let device = api.device(ordinal)?;
            let is_known = device == own || self.contexts.contains_key(&device);
            if !is_known && api.is_in_use(device)? {
                self.contexts.insert(device, api.retain_context(device)?);
            }
        }
        Ok(())
    }

    fn gathering(&mut self, api: Api) -> Called<u64> {
        match self.gathering {
            Some(stream) => Ok(stream),
            None => Ok(*self.gathering.insert(api.create_stream()?)),
        }
    }
}

/// Has a stream of the current context wait for all that another context has now.
///
/// # Safety
/// The contexts are alive, and the stream is the current one's.
unsafe fn waits_for(api: Api, (own, stream): (u64, u64), other: u64) -> Called<()> {
    // SAFETY: the caller's promise.
    unsafe { api.set_current_context(other) }?;
    let recorded = api.create_event().and_then(|event| {
        // SAFETY: both are alive, and of one context.
        unsafe { api.record_context(event, other) }.map(|()| event)
    });
    // SAFETY: the caller's promise.
    unsafe { api.set_current_context(own) }?;
    let event = recorded?;
    // SAFETY: both are alive; a stream may wait for an event of another device.
    let waits = unsafe { api.stream_waits(stream, event) };
    // SAFETY: made above; streams that wait for it still do.
    unsafe { api.destroy_event(event) }.and(waits)
}
