//! The table of figures: one list of columns, written for a terminal or as HTML.

use bothends_core::columns;

use crate::figure::{
    BOTH_ENDS, MEASURED, NONE, Origin, megabytes, number, or_none, origin_words, percent,
    short_digest,
};
use crate::page::markup::{escape, tag};
use crate::{ReportInput, StrategyRun};

/// A column: its heading, the origin of its figures, and the figure of a run.
type Column = (&'static str, Origin, fn(&StrategyRun, &ReportInput) -> String);

const COLUMNS: [Column; 10] = [
    ("images/s", BOTH_ENDS, |run, _| number(run.images_per_s)),
    ("× cpu", BOTH_ENDS, |run, input| or_none(input.speed_up(run), number)),
    ("utilisation", BOTH_ENDS, |run, _| or_none(run.utilisation, percent)),
    ("front", MEASURED, |run, _| run.front_batches.to_string()),
    ("back", MEASURED, |run, _| run.back_batches.to_string()),
    ("η", BOTH_ENDS, |run, _| or_none(run.efficiency, number)),
    ("CPU ms/image", MEASURED, |run, _| or_none(run.cpu_ms_per_image, number)),
    ("peak RSS MB", MEASURED, |run, _| {
        run.peak_rss_bytes.map_or_else(|| NONE.to_owned(), megabytes)
    }),
    ("rescued", MEASURED, |run, _| run.rescued.to_string()),
    ("stream digest", MEASURED, |run, _| short_digest(&run.stream_digest)),
];

/// The report's table as aligned plain text for a terminal, ending in a newline. Below it is stated which
/// figures depend on a model.
#[must_use]
pub fn table(input: &ReportInput) -> String {
    let headings = COLUMNS.iter().map(|(heading, ..)| (*heading).to_owned());
    let headings = std::iter::once("strategy".to_owned()).chain(headings);
    let mut lines: Vec<Vec<String>> = vec![headings.collect()];
    for (run, name) in input.runs.iter().zip(input.names()) {
        let cells = COLUMNS.iter().map(|(.., cell)| cell(run, input));
        lines.push(std::iter::once(name).chain(cells).collect());
    }
    columns(&lines, 1) + &origins(input)
}

/// Which columns have which origin, one line per origin.
fn origins(input: &ReportInput) -> String {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for (heading, origin, _) in COLUMNS {
        let words = origin_words(origin, input);
        match lines.iter_mut().find(|(seen, _)| *seen == words) {
            Some((_, headings)) => headings.push(heading),
            None => lines.push((words, vec![heading])),
        }
    }
    lines
        .iter()
        .map(|(words, headings)| format!("{words}: {}\n", headings.join(", ")))
        .collect()
}

/// The same table as HTML.
pub(crate) fn html_table(input: &ReportInput) -> String {
    let headings: String = COLUMNS
        .iter()
        .map(|(heading, origin, _)| {
            let tag = tag(*origin, input);
            format!("<th scope=\"col\">{}{tag}</th>", escape(heading))
        })
        .collect();
    let lines: String = input
        .runs
        .iter()
        .zip(input.names())
        .map(|(run, name)| {
            let cells: String = COLUMNS
                .iter()
                .map(|(.., cell)| format!("<td>{}</td>", escape(&cell(run, input))))
                .collect();
            format!("<tr><th scope=\"row\">{}</th>{cells}</tr>\n", escape(&name))
        })
        .collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\">strategy</th>\
         {headings}</tr></thead>\n<tbody>\n{lines}</tbody></table></div>\n"
    )
}

impl ReportInput {
    /// The name of each run: its strategy, with its epoch if it ran more than once. Where it ran the same
    /// epoch more than once, runs are numbered.
    pub(crate) fn names(&self) -> Vec<String> {
        let same = |run: &StrategyRun, other: &StrategyRun| {
            other.strategy == run.strategy && other.epoch == run.epoch
        };
        let name = |(i, run): (usize, &StrategyRun)| {
            let StrategyRun { strategy, epoch, .. } = run;
            let is_only =
                self.runs.iter().filter(|it| it.strategy == *strategy).count() == 1;
            let is_only_of_epoch =
                self.runs.iter().filter(|it| same(run, it)).count() == 1;
            match (is_only, is_only_of_epoch) {
                (true, _) => strategy.clone(),
                (false, true) => format!("{strategy} epoch {epoch}"),
                (false, false) => {
                    let nth = self.runs[..=i].iter().filter(|it| same(run, it)).count();
                    format!("{strategy} epoch {epoch}, run {nth}")
                }
            }
        };
        self.runs.iter().enumerate().map(name).collect()
    }

    /// A run's rate relative to that of strategy `cpu` in the same report.
    pub(crate) fn speed_up(&self, run: &StrategyRun) -> Option<f64> {
        let speed_up = run.images_per_s / self.host_alone()?.images_per_s;
        speed_up.is_finite().then_some(speed_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_table_is_aligned_and_complete() {
        let text = table(&example::input());
        let expected = "\
strategy  images/s  × cpu  utilisation  front  back      η  CPU ms/image  peak RSS MB  rescued  stream digest
cpu            200   1.00       61.0 %     40     0  0.800          4.90          210        0     aaaaaaaaaa
ordered        246   1.23       75.0 %     33     7  0.984          4.00          231        1     aaaaaaaaaa
";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains(
            "measured with a modelled device and accelerator: images/s, × cpu"
        ));
        assert!(text.ends_with(
            "measured: front, back, CPU ms/image, peak RSS MB, rescued, stream digest\n"
        ));
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let mut input = example::input();
        input.runs.remove(0);
        (input.runs[0].utilisation, input.runs[0].efficiency) = (None, None);
        input.runs[0].stream_digest.clear();
        let text = table(&input);
        let line = text.lines().nth(1).unwrap();
        assert_eq!(line.matches(NONE).count(), 4, "{text}");
    }

    #[test]
    fn a_strategy_that_ran_twice_is_named_with_its_epochs() {
        let mut input = example::input();
        input.runs.push(input.runs[1].clone());
        assert_eq!(
            input.names(),
            ["cpu", "ordered epoch 0, run 1", "ordered epoch 0, run 2"]
        );
        // As in the JSON, the event file and the progress, also where a run continued in a later epoch.
        (input.runs[1].epoch, input.runs[2].epoch) = (4, 5);
        assert_eq!(input.names(), ["cpu", "ordered epoch 4", "ordered epoch 5"]);
    }

    #[test]
    fn an_empty_report_has_its_headings() {
        let mut input = example::input();
        input.runs.clear();
        assert!(table(&input).starts_with("strategy  images/s"));
    }
}
