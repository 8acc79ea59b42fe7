//! bothends-agent
