//! CPU time of this process, as the kernel counts it (proc(5), `/proc/self/stat`).

/// Clock ticks per second in `/proc`: `USER_HZ`, 100 on every Linux this runs on.
const TICKS_PER_S: f64 = 100.0;

/// CPU seconds of all threads of this process so far, in steps of 10 ms; `None` without `/proc`.
pub(crate) fn process_seconds() -> Option<f64> {
    std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| seconds(&stat))
}

/// Fields 14 and 15 (user and system ticks). The second field, the program's name in
/// parentheses, may hold anything, so counting begins after its end.
fn seconds(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut ticks = after_name.split(' ').skip(11).map(str::parse::<u32>);
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some((f64::from(user) + f64::from(system)) / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_found_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4 100 0 0 0 250 50 0 0 20 0 1 0 9 8 7";
        assert_eq!(seconds(stat), Some(3.0));
        assert_eq!(seconds("nonsense"), None);
    }

    #[test]
    fn this_process_has_used_some() {
        assert!(process_seconds().is_some());
    }
}
