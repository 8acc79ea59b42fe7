//! bothends-agent
fn main() {}
