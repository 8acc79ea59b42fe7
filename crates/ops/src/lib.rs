//! bothends-ops
