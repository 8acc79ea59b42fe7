//! epoch
