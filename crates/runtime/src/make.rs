//! How the host makes samples: `front` is its workers as one producer, `worker` one of them.

pub(crate) mod chores;
pub(crate) mod front;
pub(crate) mod worker;
