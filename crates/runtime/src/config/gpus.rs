//! Where a run's GPUs come from: NVIDIA's driver, or one that the caller brings.
//!
//! It opens a GPU and does nothing with it: as a producer it is `devices/gpu.rs`'s.

use std::process;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bothends_gpu::GpuError;
use bothends_gpu::driver::Driver;
use bothends_gpu::driver::cuda::Cuda;
use bothends_gpu::kernels::PTX;

/// The GPUs of a run.
#[derive(Debug, Clone, Default)]
pub enum Gpus {
    /// Those of this machine, through NVIDIA's driver, which is loaded when one is asked for.
    #[default]
    Installed,
    /// This driver whichever is asked for: a twin in tests, or what another library has opened.
    Given(Arc<dyn Driver>),
}

/// The GPUs that somebody in this process has open.
static OPEN: Opened<Weak<Cuda>> = Opened::new();

/// What is open of GPUs, by the process that opened it and the ordinal. Who opens one is waited for by those of
/// its process who want the same one. A process that is forked off meanwhile has places of its own: the locks of
/// its parent's may be held by a thread that it does not have.
#[derive(Debug)]
pub(crate) struct Opened<T>(Mutex<Vec<(Id, Place<T>)>>);

/// A process and an ordinal.
type Id = (u32, u32);
type Place<T> = Arc<Mutex<Option<T>>>;

impl<T> Opened<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Works with what this process has open of that ordinal, alone.
    pub(crate) fn at<R>(
        &self,
        ordinal: u32,
        work: impl FnOnce(&mut Option<T>) -> R,
    ) -> R {
        let place = self.place((process::id(), ordinal));
        let mut open = place.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut open)
    }

    /// Its place. Nobody has the lock here for longer than a look.
    fn place(&self, id: Id) -> Place<T> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, place)) = places.iter().find(|(known, _)| *known == id) {
            return Arc::clone(place);
        }
        let place = Place::default();
        places.push((id, Arc::clone(&place)));
        place
    }
}

impl Gpus {
    /// The GPU of that number with the kernels of this release; everybody who asks for the same
    /// one gets the same driver. Blocks as [`Cuda::open`] does, for 60 s at most.
    ///
    /// # Errors
    /// [`GpuError::Unavailable`], which names what is missing.
    pub(crate) fn open(&self, ordinal: u32) -> Result<Arc<dyn Driver>, GpuError> {
        match self {
            Self::Given(driver) => Ok(Arc::clone(driver)),
            Self::Installed => Ok(installed(ordinal)?),
        }
    }
}

fn installed(ordinal: u32) -> Result<Arc<Cuda>, GpuError> {
    OPEN.at(ordinal, |open| {
        if let Some(known) = open.as_ref().and_then(Weak::upgrade) {
            return Ok(known);
        }
        let opened = Arc::new(Cuda::open(ordinal, PTX)?);
        *open = Some(Arc::downgrade(&opened));
        Ok(opened)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_does_not_wait_for_whom_its_parent_waits_for() {
        let opened = Opened::<u32>::new();
        opened.at(0, |open| {
            *open = Some(7);
            // As in a process that is forked off at this moment.
            let in_fork = opened.place((process::id() ^ 1, 0));
            assert_eq!(*in_fork.try_lock().expect("nobody has it there"), None);
            assert_eq!(opened.at(1, |open| *open), None, "nor who wants another GPU");
        });
        assert_eq!(opened.at(0, |open| *open), Some(7));
    }
}
