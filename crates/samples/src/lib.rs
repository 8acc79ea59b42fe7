//! bothends-samples
