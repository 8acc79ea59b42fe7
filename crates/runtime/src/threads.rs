//! What threads need besides work: how they end (`shutdown`, `join`), where and after whom they run
//! (`pin`, `priority`), what they use (`times`, `process`) and may use (`limits`,
//! `ulimits`), which process is theirs (`fork`), and which others share the machine
//! (`registration`).

pub(crate) mod fork;
pub(crate) mod join;
pub(crate) mod limits;
pub(crate) mod pin;
pub(crate) mod priority;
pub mod process;
pub(crate) mod registration;
pub mod shutdown;
pub(crate) mod times;
pub(crate) mod ulimits;
