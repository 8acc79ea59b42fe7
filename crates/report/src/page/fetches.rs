//! What was fetched from a remote store, and what held it up.

use bothends_figures::Fetches;

use crate::ReportInput;
use crate::figure::number;
use crate::page::markup::entry;

/// The figures as a list; `None` for data that are in no remote store.
pub(crate) fn list(input: &ReportInput) -> Option<String> {
    let fetches: &Fetches = input.fetches.as_ref()?;
    let counts = [
        ("requests", fetches.requests),
        ("most requests in flight at once", fetches.most_in_flight.into()),
        ("bytes", fetches.bytes),
        ("records joined to a neighbour's request", fetches.joined),
        ("second requests for late records", fetches.hedged),
        ("of these answered first", fetches.hedges_won),
        ("requests sent again", fetches.retried),
        ("answers from a store that limits requests", fetches.throttled),
        ("requests without an answer", fetches.timed_out),
        ("records that could not be fetched", fetches.failed),
        ("records withdrawn", fetches.withdrawn),
        ("records read from the cache instead", fetches.cached),
        ("bytes of these", fetches.cached_bytes),
        ("records damaged in the cache, and fetched again", fetches.cache_damaged),
    ];
    let counts = counts.map(|(name, n)| entry(name, &n.to_string()));
    let waits = fetches.waits.by_cause();
    let waits = waits.map(|(cause, s)| {
        entry(&format!("waited: {cause}"), &format!("{} s", number(s)))
    });
    Some(format!("<dl class=\"settings\">\n{}{}</dl>\n", counts.concat(), waits.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn only_remote_data_have_fetches() {
        let mut input = example::input();
        assert_eq!(list(&input), None);
        let fetches = Fetches { retried: 17, cached: 18, ..Fetches::default() };
        input.fetches = Some(fetches);
        let list = list(&input).unwrap();
        for (name, n) in
            [("requests sent again", 17), ("records read from the cache instead", 18)]
        {
            assert!(list.contains(&format!("<dt>{name}</dt><dd>{n}</dd>")), "{list}");
        }
    }
}
