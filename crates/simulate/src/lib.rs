//! bothends-simulate
