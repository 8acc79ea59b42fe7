//! bothends-io
