//! A thermal cap: a device that uses more power than it can dissipate for too long computes more slowly.
//!
//! Energy above the cooling power fills a reservoir, and energy below it drains the reservoir. While the
//! reservoir is full, work takes longer. The temperature is [`COOL_K`] with an empty reservoir and [`HOT_K`] with
//! a full one, and proportional in between: a figure for the SMART log, which no preset is calibrated for.

/// The constants of a thermal cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThermalConfig {
    /// Power that can be cooled forever, in milliwatts.
    pub cooled_mw: u64,
    /// Energy above that until the cap comes, in millijoules.
    pub reservoir_mj: u64,
    /// Time of work under the cap, in thousandths of its usual time; less than 1000 is 1000.
    pub slowdown_milli: u64,
}

/// Temperature of a device that has nothing to dissipate, in kelvin.
pub const COOL_K: u16 = 310;
/// Temperature at which a device throttles, in kelvin.
pub const HOT_K: u16 = 343;

/// The usual time of work.
const NO_SLOWDOWN_MILLI: u64 = 1000;

/// A thermal cap in use.
#[derive(Debug)]
pub struct Thermal {
    config: ThermalConfig,
    heat_pj: u128,
    seen_ns: u64,
    seen_pj: u128,
}

impl Thermal {
    /// A cold device.
    #[must_use]
    pub fn new(config: ThermalConfig) -> Self {
        Self { config, heat_pj: 0, seen_ns: 0, seen_pj: 0 }
    }

    /// How slow work is at `now_ns`, the device having used `total_pj` so far; in thousandths.
    pub fn slowdown_milli(&mut self, now_ns: u64, total_pj: u128) -> u64 {
        self.look(now_ns, total_pj);
        if self.is_hot() {
            self.config.slowdown_milli.max(NO_SLOWDOWN_MILLI)
        } else {
            NO_SLOWDOWN_MILLI
        }
    }

    /// Takes in what the device has used until `now_ns`.
    pub fn look(&mut self, now_ns: u64, total_pj: u128) {
        let time_ns = now_ns.saturating_sub(self.seen_ns);
        let cooled_pj = u128::from(self.config.cooled_mw) * u128::from(time_ns);
        let used_pj = total_pj.saturating_sub(self.seen_pj);
        self.heat_pj = (self.heat_pj + used_pj).saturating_sub(cooled_pj);
        self.seen_ns = self.seen_ns.max(now_ns);
        self.seen_pj = self.seen_pj.max(total_pj);
    }

    /// Whether the reservoir is full.
    #[must_use]
    pub fn is_hot(&self) -> bool {
        self.heat_pj > self.brim_pj()
    }

    /// The temperature when it was last looked at, in kelvin.
    #[must_use]
    pub fn kelvin(&self) -> u16 {
        let range = u128::from(HOT_K - COOL_K);
        let brim = self.brim_pj().max(1);
        let above = self.heat_pj.min(brim) * range / brim;
        COOL_K + u16::try_from(above).unwrap_or(0)
    }

    fn brim_pj(&self) -> u128 {
        u128::from(self.config.reservoir_mj) * 1_000_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_comes_after_the_reservoir_and_goes_when_it_has_drained() {
        let config = ThermalConfig {
            cooled_mw: 10_000,
            reservoir_mj: 20_000,
            slowdown_milli: 2500,
        };
        let mut thermal = Thermal::new(config);
        let watts = |w: u128, s: u128| w * s * 1_000_000_000_000;
        let second = 1_000_000_000;
        // 14 W against 10 W of cooling: 4 J more each second, 20 J until the cap.
        assert_eq!(thermal.slowdown_milli(5 * second, watts(14, 5)), 1000);
        assert_eq!((thermal.kelvin(), thermal.is_hot()), (HOT_K, false));
        assert_eq!(thermal.slowdown_milli(6 * second, watts(14, 6)), 2500);
        assert_eq!((thermal.kelvin(), thermal.is_hot()), (HOT_K, true));
        // Then 5 W: it drains.
        assert_eq!(thermal.slowdown_milli(8 * second, watts(14, 6) + watts(5, 2)), 1000);
        assert_eq!(thermal.kelvin(), COOL_K + 33 * 14 / 20);
    }
}
