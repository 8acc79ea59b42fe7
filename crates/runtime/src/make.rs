//! How the host makes samples: `front` is its workers as one producer, `worker` one of them, `backlog` what they have
//! been handed, and how JPEGs are transcoded while there is time to spare (`idle`, `transcode`).

pub(crate) mod backlog;
pub(crate) mod chores;
pub(crate) mod front;
pub(crate) mod idle;
pub(crate) mod transcode;
pub(crate) mod worker;
