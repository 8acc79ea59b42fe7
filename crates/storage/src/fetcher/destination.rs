//! Memory that a fetch's bytes are received into, so that nobody copies them there afterwards.
//!
//! The task of a fetch has it, as it has the counter of `progress`. A store that can receive into memory of others
//! borrows it; all others answer with bytes of their own. However the fetch ends, the memory comes back.

use std::any::Any;
use std::fmt::Debug;
use std::ops::DerefMut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
