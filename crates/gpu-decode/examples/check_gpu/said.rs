//! What was found, one JSON object a line: the check, its value, the bar and whether it is met.

use bothends_gpu::driver::Card;
use serde_json::{Value, json};

use crate::Extent;

/// The lines so far.
#[derive(Debug)]
pub struct Said {
    extent: Extent,
    is_anything_wrong: bool,
}

/// What a value is to be.
#[derive(Debug, Clone, Copy)]
pub enum Bar {
    AtLeast(f64),
    AtMost(f64),
    /// It is told and not judged.
    None,
}

impl Said {
    pub fn new(extent: Extent) -> Self {
        Self { extent, is_anything_wrong: false }
    }

    /// On what everything was found.
    pub fn card(&mut self, card: &Card) {
        let (major, minor) = card.capability;
        self.line(&json!({
            "check": "card", "name": card.name, "driver": card.driver,
            "compute_capability": format!("{major}.{minor}"),
            "multiprocessors": card.n_multiprocessors, "memory_bytes": card.memory_bytes,
            "numa_node": card.numa_node,
        }));
    }

    /// Something is right, or it is not; what was seen, either way.
    pub fn right(&mut self, check: &str, seen: Result<String, String>) {
        let is_right = seen.is_ok();
        self.is_anything_wrong |= !is_right;
        let detail = seen.unwrap_or_else(|wrong| wrong);
        let line = json!({
            "check": check, "value": is_right, "passed": is_right, "detail": detail,
        });
        self.line(&line);
    }

    /// A figure and its bar. Of the twin it is said that it came out, and no more.
    pub fn figure(&mut self, check: &str, (value, unit): (f64, &str), bar: Bar) {
        if self.extent == Extent::Twin {
            return self.skipped(check, "it runs on the twin, whose speed means nothing");
        }
        let (bar, passed): (Value, Value) = match bar {
            Bar::AtLeast(least) => (format!("≥ {least}").into(), (value >= least).into()),
            Bar::AtMost(most) => (format!("≤ {most}").into(), (value <= most).into()),
            Bar::None => (Value::Null, Value::Null),
        };
        self.line(&json!({
            "check": check, "value": value, "unit": unit, "bar": bar, "passed": passed,
        }));
    }

    /// Something was not done.
    pub fn skipped(&mut self, check: &str, why: &str) {
        self.line(&json!({ "check": check, "skipped": why }));
    }

    /// Whether anything that is right or wrong was wrong.
    pub fn is_anything_wrong(&self) -> bool {
        self.is_anything_wrong
    }

    #[expect(clippy::unused_self, reason = "lines are said through one value")]
    fn line(&mut self, line: &Value) {
        println!("{line}");
    }
}
