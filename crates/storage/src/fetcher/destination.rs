//! Memory that a fetch's bytes are received into, so that nobody copies them there afterwards.
//!
//! The task of a fetch has it, as it has the counter of `progress`. A store that can receive into memory of others
//! borrows it; all others answer with bytes of their own. However the fetch ends, the memory comes back.
//! [`Received`] puts an answer there that comes in parts.

use std::any::Any;
use std::fmt::Debug;
use std::ops::DerefMut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};

use crate::StorageError;

tokio::task_local! {
    static OF_TASK: Lent;
}

/// Memory of exactly as many bytes as are fetched. What is in it after a fetch that failed is not defined.
pub trait Destination: Any + Debug + Send {
    /// The memory.
    fn bytes(&mut self) -> &mut [u8];
}

impl<M: DerefMut<Target = [u8]> + Any + Debug + Send> Destination for M {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }
}

/// The destination of a fetch that has ended.
#[derive(Debug)]
pub enum Returned {
    /// It has the bytes that were asked for.
    Filled(Box<dyn Destination>),
    /// The bytes came elsewhere, or did not come.
    Unused(Box<dyn Destination>),
}

impl Returned {
    /// The memory.
    #[must_use]
    pub fn memory(self) -> Box<dyn Destination> {
        match self {
            Self::Filled(memory) | Self::Unused(memory) => memory,
        }
    }
}

/// A destination that a task has until its fetch ends; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Lent(Arc<Mutex<Option<Returned>>>);

impl Lent {
    pub(super) fn new(memory: Box<dyn Destination>) -> Self {
        Self(Arc::new(Mutex::new(Some(Returned::Unused(memory)))))
    }

    /// Takes it away from the task, which must have ended.
    pub(super) fn take_back(&self) -> Option<Returned> {
        self.inside().take()
    }

    /// What `fetch` says, during which a store may borrow the memory.
    pub(super) async fn during<T>(&self, fetch: impl Future<Output = T>) -> T {
        OF_TASK.scope(self.clone(), fetch).await
    }

    fn inside(&self) -> MutexGuard<'_, Option<Returned>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A destination that a store receives into.
#[derive(Debug)]
pub(crate) struct Borrowed {
    owner: Lent,
    /// `None` once it is given back.
    memory: Option<Box<dyn Destination>>,
}

/// Memory for exactly `len` bytes of the fetch whose task this is; none where its caller gave none.
pub(crate) fn borrowed(len: u64) -> Option<Borrowed> {
    let owner = OF_TASK.try_with(Lent::clone).ok()?;
    let mut memory = owner.take_back()?.memory();
    let fits = memory.bytes().len() as u64 == len;
    let borrowed = Borrowed { owner, memory: Some(memory) };
    fits.then_some(borrowed)
}

impl Borrowed {
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], |memory| memory.bytes())
    }

    /// The bytes that were asked for are in it: the store answers with none.
    pub(crate) fn filled(mut self) {
        *self.owner.inside() = self.memory.take().map(Returned::Filled);
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            *self.owner.inside() = Some(Returned::Unused(memory));
        }
    }
}

/// An answer that comes in parts, put together in the destination of the fetch whose task this is, or else in memory of
/// its own.
#[derive(Debug)]
pub(crate) struct Received {
    place: Place,
    len: usize,
    n_come: usize,
}

#[derive(Debug)]
enum Place {
    Lent(Borrowed),
    Own(BytesMut),
}

/// An answer does not have as many bytes as were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrongLength {
    TooLong { most: usize },
    CutShort,
}

impl WrongLength {
    /// What that is of an object.
    pub(crate) fn at(self, place: String) -> StorageError {
        match self {
            Self::TooLong { most } => {
                let why = format!("the answer has more than {most} bytes");
                StorageError::Refused { place, why }
            }
            Self::CutShort => StorageError::cut_short(place),
        }
    }
}

impl Received {
    /// An answer that shall have `len` bytes, of which none has come.
    pub(crate) fn of(len: usize) -> Self {
        let own = || Place::Own(BytesMut::with_capacity(len));
        let place = borrowed(len as u64).map_or_else(own, Place::Lent);
        Self { place, len, n_come: 0 }
    }

    /// Puts the next part behind the others; of one that is too long, nothing.
    pub(crate) fn add(&mut self, part: &[u8]) -> Result<(), WrongLength> {
        if part.len() > self.len - self.n_come {
            return Err(WrongLength::TooLong { most: self.len });
        }
        let at = self.n_come;
        self.n_come += part.len();
        match &mut self.place {
            Place::Lent(memory) => {
                memory.bytes()[at..self.n_come].copy_from_slice(part);
            }
            Place::Own(bytes) => bytes.extend_from_slice(part),
        }
        Ok(())
    }

    /// All of it; no bytes where these are in the destination.
    pub(crate) fn whole(self) -> Result<Bytes, WrongLength> {
        if self.n_come < self.len {
            return Err(WrongLength::CutShort);
        }
        match self.place {
            Place::Lent(memory) => {
                memory.filled();
                Ok(Bytes::new())
            }
            Place::Own(bytes) => Ok(bytes.freeze()),
        }
    }
}
