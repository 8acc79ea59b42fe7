//! The process that threads, sockets and child processes belong to.
//!
//! A fork copies their memory and not them: in the child, joining such a thread waits for
//! ever, taking a lock that it held too, and a goodbye over a shared socket would end the
//! parent's session. So whoever owns such things asks first whether it is at home; away from
//! it, it says so (`check`) and lets everything lie (no destructor runs).

use crate::error::RuntimeError;

/// Remembers in which process it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home(u32);

impl Home {
    /// The process that runs now.
    #[must_use]
    pub fn here() -> Self {
        Self(std::process::id())
    }

    /// Whether this is still the process it was made in. One system call without a wait.
    #[must_use]
    pub fn is_here(self) -> bool {
        self == Self::here()
    }

    /// As [`Self::is_here`], with the line for the user.
    ///
    /// # Errors
    /// [`RuntimeError::Forked`] in another process.
    pub fn check(self) -> Result<(), RuntimeError> {
        let Self(here) = Self::here();
        if self.0 == here {
            return Ok(());
        }
        Err(RuntimeError::Forked { made_in: self.0, here })
    }
}

#[cfg(test)]
impl Home {
    /// As in a fork: another process than the one that runs.
    pub(crate) fn of_another_process() -> Self {
        Self(std::process::id() ^ 1)
    }
}
