//! Why a clause does not hold: in one line, for who builds the device.

use bothends_core::one_line;
use bothends_csd::CsdError;
use bothends_slots::Lost;

/// How a check ends.
pub(super) type Checked<T = ()> = Result<T, Fault>;

/// Why a clause is not said to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The device does something else.
    Broken(String),
    /// The clause is about something that this device does not have, or that cannot be tried here.
    NotApplicable(String),
}

impl From<CsdError> for Fault {
    fn from(error: CsdError) -> Self {
        Self::Broken(one_line(&error))
    }
}

impl From<Lost> for Fault {
    fn from(lost: Lost) -> Self {
        Self::Broken(one_line(&*lost.0))
    }
}

/// The clause does not hold.
pub(super) fn broken<T>(why: impl Into<String>) -> Checked<T> {
    Err(Fault::Broken(why.into()))
}

/// The clause cannot be tried.
pub(super) fn not_applicable<T>(why: impl Into<String>) -> Checked<T> {
    Err(Fault::NotApplicable(why.into()))
}

/// Fails with `why` where the condition does not hold.
pub(super) fn ensure(
    holds: impl Into<Option<()>>,
    why: impl FnOnce() -> String,
) -> Checked {
    holds.into().ok_or_else(|| Fault::Broken(why()))
}

impl Fault {
    /// With what it is about in front.
    pub(super) fn of(self, what: &str) -> Self {
        match self {
            Self::Broken(why) => Self::Broken(format!("{what}{why}")),
            Self::NotApplicable(why) => Self::NotApplicable(format!("{what}{why}")),
        }
    }
}
