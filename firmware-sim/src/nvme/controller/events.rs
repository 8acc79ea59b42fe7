//! Asynchronous events: which a host wants to be told, and which it has not been told yet.
//!
//! There is one event, of the type SMART / health: the temperature has passed a threshold. Once it is told it is not
//! told again before the host has read the SMART log (Base, Asynchronous Event Request command).

use bothends_nvme::Status;

use super::Later;

/// Asynchronous events that may be awaited.
pub(in crate::nvme) const MOST_EVENTS: u8 = 4;

/// Temperature in kelvin of a device that nothing has warmed.
pub(in crate::nvme) const KELVIN: u16 = 310;
/// SMART / health (1h), temperature threshold (01h), SMART log (02h).
const TEMPERATURE: u64 = 0x02_01_01;
/// The warning of a temperature in Asynchronous Event Configuration.
const TOLD_TEMPERATURE: u32 = 1 << 1;
/// The upper threshold until a host sets another: what Identify Controller tells as the warning temperature.
const WARNING_KELVIN: u16 = 343;

/// What a controller has to tell, and whom.
#[derive(Debug)]
pub(in crate::nvme) struct Events {
    requests: Vec<Later>,
    /// Asynchronous Event Configuration, feature 0Bh.
    configuration: u32,
    /// Temperature thresholds in kelvin, feature 04h: an upper one and a lower one.
    over: u16,
    under: u16,
    kelvin: u16,
    temperature: Told,
}

/// How far an event has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// There is nothing to tell.
    Nothing,
    /// It has to be told.
    Due,
    /// It has been told, and the log that says more has not been read.
    Unread,
}

/// Where a temperature is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Between the thresholds.
    Inside,
    /// At one of them, or beyond it.
    Outside,
}

impl Events {
    pub(super) fn new(kelvin: u16) -> Self {
        Self {
            requests: Vec::new(),
            configuration: 0,
            over: WARNING_KELVIN,
            under: 0,
            kelvin,
            temperature: Told::Nothing,
        }
    }

    /// A host awaits an event: what it is told at once, if something is due.
    ///
    /// # Errors
    /// Asynchronous Event Request Limit Exceeded.
    pub(in crate::nvme) fn await_one(
        &mut self,
        later: Later,
    ) -> Result<Option<u64>, Status> {
        if self.requests.len() >= MOST_EVENTS.into() {
            return Err(Status::EVENT_LIMIT);
        }
        if self.temperature == Told::Due {
            self.temperature = Told::Unread;
            return Ok(Some(TEMPERATURE));
        }
        self.requests.push(later);
        Ok(None)
    }

    /// The request with this identifier, which is no longer one.
    pub(super) fn withdraw(&mut self, id: u16) -> Option<Later> {
        let at = self.requests.iter().position(|later| later.id() == id)?;
        Some(self.requests.remove(at))
    }

    /// All requests.
    pub(super) fn withdraw_all(&mut self) -> Vec<Later> {
        std::mem::take(&mut self.requests)
    }

    /// The device is as warm as this: what has to be told because of it, and to which request.
    pub(super) fn set_temperature(&mut self, kelvin: u16) -> Option<(Later, u64)> {
        let was = self.place();
        self.kelvin = kelvin;
        self.changed(was)
    }

    /// Whether the temperature is at a threshold or beyond it.
    pub(in crate::nvme) fn is_outside(&self) -> bool {
        self.place() == Place::Outside
    }

    fn place(&self) -> Place {
        if self.kelvin >= self.over || self.kelvin <= self.under {
            Place::Outside
        } else {
            Place::Inside
        }
    }

    fn changed(&mut self, was: Place) -> Option<(Later, u64)> {
        let is_told = self.configuration & TOLD_TEMPERATURE != 0;
        if is_told
            && self.is_outside()
            && was == Place::Inside
            && self.temperature == Told::Nothing
        {
            self.temperature = Told::Due;
        }
        if self.temperature != Told::Due || self.requests.is_empty() {
            return None;
        }
        self.temperature = Told::Unread;
        Some((self.requests.remove(0), TEMPERATURE))
    }

    /// The host has read the SMART log: the next passing of a threshold is told.
    pub(in crate::nvme) fn read_smart(&mut self) {
        if self.temperature == Told::Unread {
            self.temperature = Told::Nothing;
        }
    }

    pub(super) fn configuration(&self) -> u32 {
        self.configuration
    }

    /// Which events are told. One that is on already, of a temperature that is outside, is due.
    pub(super) fn configure(&mut self, value: u32) -> Option<(Later, u64)> {
        let was_told = self.configuration & TOLD_TEMPERATURE != 0;
        self.configuration = value;
        self.changed(if was_told { self.place() } else { Place::Inside })
    }

    /// A temperature threshold, of the sensor and the side that dword 11 says.
    pub(super) fn threshold(&self, dword: u32) -> Result<u64, Status> {
        Ok(u64::from(match Side::of(dword)? {
            Side::Over => self.over,
            Side::Under => self.under,
        }))
    }

    pub(super) fn set_threshold(
        &mut self,
        dword: u32,
    ) -> Result<Option<(Later, u64)>, Status> {
        let was = self.place();
        let kelvin = (dword & 0xffff) as u16;
        match Side::of(dword)? {
            Side::Over => self.over = kelvin,
            Side::Under => self.under = kelvin,
        }
        Ok(self.changed(was))
    }
}

enum Side {
    Over,
    Under,
}

impl Side {
    /// Bits 21:20 say the side; 19:16 the sensor: all, the composite temperature, or the one sensor, which are one.
    fn of(dword: u32) -> Result<Self, Status> {
        if !matches!(dword >> 16 & 0xf, 0 | 1 | 0xf) {
            return Err(Status::INVALID_FIELD);
        }
        match dword >> 20 & 3 {
            0 => Ok(Self::Over),
            1 => Ok(Self::Under),
            _ => Err(Status::INVALID_FIELD),
        }
    }
}
