//! bothends-report
