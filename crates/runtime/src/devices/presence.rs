//! Whether a device is there: what its thread, the collector and the run say of it, once each.
//!
//! It decides nothing. How a missing device is reached is `devices/reach.rs`'s, when one that takes
//! no job is given up `collect/capacity.rs`'s.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bothends_core::setting::Names;
use bothends_csd::{Capabilities, CsdError};
use crossbeam::channel::Sender;

use crate::devices::thread::Counter;
use crate::devices::trust::{Reads, Trust};
use crate::error::one_line_with;
use crate::runtime::memory::DEVICE_DEPTH;

/// What becomes of a device that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It is reached again as soon as that can be.
    IsTriedAgain,
    /// It was emulated, or brought by the caller, who knows how it is reached.
    IsGone,
}

/// How a device is, as its thread and the run both see it. Clones are one.
#[derive(Debug, Clone)]
pub(crate) struct Presence {
    /// Of the device, or of the member that has this place of a pool.
    name: Arc<Mutex<String>>,
    lost: Lost,
    now: Arc<Mutex<Now>>,
    trust: Arc<Mutex<Trust>>,
    notes: Sender<String>,
    /// What notes call settings.
    names: Names,
}

#[derive(Debug, Default)]
struct Now {
    /// Of the last time that it was there.
    capabilities: Option<Capabilities>,
    /// Why it is not there.
    missing: Option<String>,
    counter: Option<Counter>,
}

impl Presence {
    /// Of a device that is not known yet.
    pub(crate) fn new(
        name: &str,
        lost: Lost,
        trust: Trust,
        (notes, names): (Sender<String>, Names),
    ) -> Self {
        let name = Arc::new(Mutex::new(name.to_owned()));
        let trust = Arc::new(Mutex::new(trust));
        Self { name, lost, now: Arc::default(), trust, notes, names }
    }

    /// An error in one line, as notes say it.
    pub(crate) fn line(&self, error: &CsdError) -> String {
        one_line_with(error, self.names)
    }

    pub(crate) fn name(&self) -> String {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A place of a pool is this member's from now on, which was missing for this reason, if it was.
    pub(crate) fn is_of(&self, member: String, missing: Option<String>) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = member;
        self.now().missing = missing;
    }

    /// A member of a pool has finished what it had, and is gone.
    pub(crate) fn has_left(&self) {
        let why = "its pool no longer lists it";
        self.note(format!("device {}: {why}; it has left", self.name()));
    }

    /// How far it is believed.
    pub(crate) fn trust(&self) -> MutexGuard<'_, Trust> {
        self.trust.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has lied, and is no longer used.
    pub(crate) fn is_expelled(&self) -> bool {
        self.trust().has_lied()
    }

    /// Who has lied, of those that had this place.
    pub(crate) fn liar(&self) -> Option<Arc<str>> {
        self.trust().liar()
    }

    /// It has lied, or the member `name` has while it had this place: it is not used again in this run,
    /// whatever comes of it.
    pub(crate) fn is_caught(&self, name: &str, why: &str) {
        let next = "it is no longer used, and the host redoes its batches";
        self.note(format!("device {name}: {why}; {next}"));
        let mut now = self.now();
        now.missing = Some(why.to_owned());
        now.counter = None;
    }

    /// The number of the latest connection to it.
    pub(crate) fn connection(&self) -> u64 {
        self.trust().connection()
    }

    /// It is there, and reads these.
    pub(crate) fn is_here(&self, capabilities: Capabilities, reads: Reads) {
        let name = self.name();
        self.trust().is_connected(&name, reads);
        let mut now = self.now();
        if now.missing.take().is_some() {
            self.note(format!("device {}: it is there and takes part", self.name()));
        }
        now.capabilities = Some(capabilities);
    }

    /// It is not there; said once for as long as that lasts.
    pub(crate) fn is_missing(&self, why: String) {
        if self.is_expelled() {
            return;
        }
        let mut now = self.now();
        if now.missing.is_none() {
            let next = match self.lost {
                Lost::IsTriedAgain => "the run continues without it and tries again",
                Lost::IsGone => "the run continues without it",
            };
            self.note(format!("device {}: {why}; {next}", self.name()));
        }
        now.missing = Some(why);
        now.counter = None;
    }

    /// It answers, and what host and device were told does not fit: waiting does not mend that.
    /// Said once, also of one that was missing.
    pub(crate) fn is_mistaken(&self, why: String) {
        if self.is_expelled() {
            return;
        }
        let mut now = self.now();
        if now.missing.as_ref() != Some(&why) {
            let next = "the run continues without it";
            self.note(format!("device {}: {why}; {next}", self.name()));
        }
        now.missing = Some(why);
        now.counter = None;
    }

    /// It is connected and takes no job; said once for as long as that lasts.
    pub(crate) fn is_stuck(&self, why: &str) {
        if self.is_expelled() {
            return;
        }
        let mut now = self.now();
        if now.missing.is_none() {
            let next = "the run continues without it and asks again";
            self.note(format!("device {}: {why}; {next}", self.name()));
        }
        now.missing = Some(why.to_owned());
    }

    /// One that was stuck has taken a job.
    pub(crate) fn is_free(&self) {
        if self.now().missing.take().is_some() {
            self.note(format!("device {}: it takes jobs again", self.name()));
        }
    }

    pub(crate) fn missing(&self) -> Option<String> {
        self.now().missing.clone()
    }

    /// Whether it has ever been there.
    pub(crate) fn has_been_here(&self) -> bool {
        self.now().capabilities.is_some()
    }

    pub(crate) fn is_emulated(&self) -> bool {
        self.now().capabilities.as_ref().is_some_and(|known| known.emulated)
    }

    /// Jobs that it is given at a time; of one that is not known yet, the most.
    pub(crate) fn depth(&self) -> u32 {
        let now = self.now();
        let slots = now.capabilities.as_ref().map_or(DEVICE_DEPTH, |known| known.slots);
        slots.clamp(1, DEVICE_DEPTH)
    }

    pub(crate) fn counted_by(&self, counter: Counter) {
        self.now().counter = Some(counter);
    }

    /// Nobody asks it any more.
    pub(crate) fn is_not_asked(&self) {
        self.now().counter = None;
    }

    /// Does something with who asks what it has counted; `None` while there is nobody.
    pub(crate) fn counter<T>(&self, ask: impl FnOnce(&mut Counter) -> T) -> Option<T> {
        self.now().counter.as_mut().map(ask)
    }

    fn note(&self, text: String) {
        // Who reads no notes keeps the oldest: they are of no use to them.
        let _ = self.notes.try_send(text);
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
