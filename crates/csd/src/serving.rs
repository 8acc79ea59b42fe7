//! The device's one loop, over any link: messages in, finished jobs out.

/// How serving a host ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The host closed, or died.
    HostGone,
    /// The caller asked for it.
    Stopped,
}
