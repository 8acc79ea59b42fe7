//! How many agents a pool needs, and samples for ranks that step together: `bothends_core::pool` for Python.

use bothends_core::ids::Ns;
use bothends_core::pool::size::{
    Bounds, Need, PoolSize as CorePoolSize, SizeConfig, demand, wanted,
};
use bothends_core::pool::together::{Step, together as arranged};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The number of agents for jobs of which each is a pair of rates: what its consumer takes while it does not
/// wait, and what its host makes.
#[pyfunction]
#[pyo3(signature = (needs, agent_rate, *, margin = 0.1, least = 0, most = u32::MAX))]
pub(crate) fn wanted_agents(
    needs: Vec<(f64, f64)>,
    agent_rate: Option<f64>,
    margin: f64,
    least: u32,
    most: u32,
) -> u32 {
    let bounds = Bounds { min: least, max: most };
    wanted(demand(&rates(needs), margin), agent_rate, bounds)
}

/// Positions of a window of samples, arranged so that the ranks of each step have equal work.
#[pyfunction]
#[pyo3(signature = (work, *, ranks, batch_size, key = 0))]
pub(crate) fn together(
    py: Python<'_>,
    work: Vec<u64>,
    ranks: u32,
    batch_size: u32,
    key: u64,
) -> PyResult<Vec<u32>> {
    if ranks == 0 || batch_size == 0 {
        let line = "`ranks` and `batch_size` must be 1 or more";
        return Err(PyValueError::new_err(line));
    }
    Ok(py.detach(move || arranged(&work, Step { ranks, batch_size }, key)))
}

/// The number of agents that a pool should have, over time.
#[pyclass(module = "bothends")]
pub(crate) struct PoolSize {
    size: CorePoolSize,
}

#[pymethods]
impl PoolSize {
    #[new]
    #[pyo3(signature = (most, *, least = 0, margin = 0.1, keep_seconds = 60.0, now = 0))]
    fn new(
        most: u32,
        least: u32,
        margin: f64,
        keep_seconds: f64,
        now: u32,
    ) -> PyResult<Self> {
        let defaults = SizeConfig::up_to(most);
        let keep_ns = nanoseconds("keep_seconds", keep_seconds)?;
        let bounds = Bounds { min: least, max: most };
        let config = SizeConfig { bounds, margin, keep_ns, ..defaults };
        Ok(Self { size: CorePoolSize::new(config, now) })
    }

    /// The number of agents from now on; `seconds` is any clock that does not go back.
    fn observe(
        &mut self,
        needs: Vec<(f64, f64)>,
        agent_rate: Option<f64>,
        seconds: f64,
    ) -> PyResult<u32> {
        let now = Ns(nanoseconds("seconds", seconds)?);
        Ok(self.size.observe(&rates(needs), agent_rate, now))
    }

    #[getter]
    fn size(&self) -> u32 {
        self.size.size()
    }
}

fn rates(needs: Vec<(f64, f64)>) -> Vec<Need> {
    needs.into_iter().map(|(consumer, host)| Need { consumer, host }).collect()
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked not to be negative, and `as` saturates"
)]
fn nanoseconds(name: &str, seconds: f64) -> PyResult<u64> {
    if seconds.is_finite() && seconds >= 0.0 {
        return Ok((seconds * 1e9) as u64);
    }
    Err(PyValueError::new_err(format!("`{name}` is {seconds}; it must be 0 or more")))
}
