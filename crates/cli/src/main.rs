//! bothends
fn main() {}
