//! The rule for the highest rate is implemented twice: here, and in `scripts/peers/sustained.py` for the
//! other loaders. Both run on the same curves and measure the same.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;

use bothends_bench::au::highest;

/// Starting rates and capacities, given to both.
const CURVES: [(f64, f64); 6] = [
    (1000.0, 1000.0),
    (20.0, 977.0),
    (50_000.0, 1234.5),
    (700.0, 333.25),
    (1111.1, 1000.0),
    (100_000.0, 1.0),
];

#[test]
fn the_peers_rule_is_ours() {
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/peers/sustained.py");
    for (start, capacity) in CURVES {
        let mut command = Command::new("python3");
        command.arg(&script).args([start.to_string(), capacity.to_string()]);
        let said = match command.output() {
            Ok(output) if output.status.success() => output.stdout,
            Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
            Err(why) => {
                println!("skipped: python3 does not start: {why}");
                return;
            }
        };
        assert_eq!(String::from_utf8_lossy(&said), ours(start, capacity));
    }
}

/// One line per measurement, the answer last. One in five measurements is disturbed.
fn ours(start: f64, capacity: f64) -> String {
    let mut lines = String::new();
    let mut n = 0;
    let found = highest(start, &mut |rate| {
        n += 1;
        let disturbed = if n % 5 == 0 { 0.8 } else { 1.0 };
        lines += &format!("{rate:.6}\n");
        Ok::<_, ()>((capacity / rate).min(1.0) * disturbed)
    })
    .unwrap();
    let answer = found.rate_images_per_s;
    lines + &answer.map_or("none\n".to_owned(), |rate| format!("{rate:.6}\n"))
}
