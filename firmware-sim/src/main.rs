//! firmware-sim
fn main() {}
