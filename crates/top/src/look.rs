//! All endpoints asked once.

use std::time::Instant;

use bothends_scrape::{Endpoint, PATIENCE, get_all};

/// What they answered.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    /// Seconds since the first look of this process.
    pub(crate) at_s: f64,
    pub(crate) answers: Vec<Answer>,
}

/// Of one endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// `HOST:PORT`.
    pub(crate) endpoint: String,
    /// Its metrics, or why there are none.
    pub(crate) text: Result<String, String>,
}

impl Look {
    /// Asks now; takes no longer than the patience there is for 32 endpoints, and as long again for
    /// each further 32.
    pub(crate) fn at(endpoints: &[Endpoint]) -> Self {
        let answers = get_all(endpoints, PATIENCE).into_iter().zip(endpoints);
        let answers = answers.map(|(text, endpoint)| Answer {
            endpoint: endpoint.authority(),
            text: text.map_err(|error| error.to_string()),
        });
        let answers = answers.collect();
        Self { at_s: seconds(), answers }
    }
}

fn seconds() -> f64 {
    static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_secs_f64()
}
