//! bothends-runtime
