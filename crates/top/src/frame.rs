//! The rows as tables on a screen of any size. What does not fit is counted.

use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Widget};

use crate::view::{Absent, Agent, Fed, Job, Rank, View};

/// From this part of the time on, waiting is drawn as something to mend.
const MUCH: f64 = 0.05;

/// A table with its heading, before it is known how many of its rows fit.
struct Section {
    heading: [&'static str; 7],
    rows: Vec<[String; 7]>,
    /// Rows to mend.
    marked: Vec<bool>,
}

/// Widths of the columns: the first takes what is left.
const WIDTHS: [Constraint; 7] = [
    Constraint::Fill(1),
    Constraint::Length(9),
    Constraint::Length(9),
    Constraint::Length(9),
    Constraint::Length(8),
    Constraint::Length(8),
    Constraint::Length(9),
];

/// Draws the view over the whole area.
pub(crate) fn draw(view: &View, area: Rect, buffer: &mut Buffer) {
    let sections = [jobs(&view.jobs), ranks(&view.ranks), agents(&view.agents)];
    let sections: Vec<Section> =
        sections.into_iter().filter(|section| !section.rows.is_empty()).collect();
    let n_absent = u16::try_from(view.absent.len().min(3)).unwrap_or(3);
    let free = area.height.saturating_sub(1 + n_absent);
    let heights = heights(&sections, free);
    let parts = [1].into_iter().chain(heights).chain([n_absent]);
    let areas = Layout::vertical(parts.map(Constraint::Length)).split(area);
    title(view).render(areas[0], buffer);
    for (section, area) in sections.iter().zip(&areas[1..]) {
        section.render(*area, buffer);
    }
    if let Some(last) = areas.last() {
        absent(&view.absent).render(*last, buffer);
    }
}

/// The same as plain text, without the spaces at the ends of lines.
pub(crate) fn text(view: &View, (columns, lines): (u16, u16)) -> String {
    let area = Rect::new(0, 0, columns, lines);
    let mut buffer = Buffer::empty(area);
    draw(view, area, &mut buffer);
    let line = |y| {
        let cells = (0..columns).filter_map(|x| buffer.cell((x, y)));
        let line: String = cells.map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned()
    };
    let text = (0..lines).map(line).collect::<Vec<_>>().join("\n");
    text.trim_end().to_owned() + "\n"
}

/// Lines for each section: all that it has, or a fair part of what there is. A heading, an empty
/// line before it, and at least one row are always wanted.
fn heights(sections: &[Section], free: u16) -> Vec<u16> {
    let wanted =
        |section: &Section| u16::try_from(section.rows.len() + 2).unwrap_or(u16::MAX);
    let mut wanted: Vec<(usize, u16)> = sections.iter().map(wanted).enumerate().collect();
    let mut heights = vec![0; sections.len()];
    // The smallest first: what it leaves is for the others.
    wanted.sort_by_key(|(_, lines)| *lines);
    let mut free = free;
    for (nth, (at, lines)) in wanted.iter().enumerate() {
        let others = u16::try_from(sections.len() - nth).unwrap_or(1);
        heights[*at] = (*lines).min(free / others);
        free -= heights[*at];
    }
    heights
}

impl Section {
    fn render(&self, area: Rect, buffer: &mut Buffer) {
        let room = usize::from(area.height.saturating_sub(2));
        let n_shown = match self.rows.len() > room {
            true => room.saturating_sub(1),
            false => self.rows.len(),
        };
        let mut rows: Vec<Row<'_>> = self.rows[..n_shown]
            .iter()
            .zip(&self.marked)
            .map(|(row, marked)| {
                let style = match marked {
                    true => Style::new().fg(Color::Yellow),
                    false => Style::new(),
                };
                Row::new(cells(row.each_ref().map(String::as_str))).style(style)
            })
            .collect();
        if n_shown < self.rows.len() && room > 0 {
            rows.push(Row::new([format!("… {} more", self.rows.len() - n_shown)]));
        }
        let heading = Style::new().add_modifier(Modifier::BOLD);
        let heading = Row::new(cells(self.heading)).style(heading).top_margin(1);
        Table::new(rows, WIDTHS).header(heading).render(area, buffer);
    }
}

/// The first column begins at the left; numbers end at the right.
fn cells(texts: [&str; 7]) -> Vec<Cell<'_>> {
    let aligned = |(nth, text): (usize, &'_ str)| {
        let alignment = if nth == 0 { Alignment::Left } else { Alignment::Right };
        (text.to_owned(), alignment)
    };
    texts
        .into_iter()
        .enumerate()
        .map(aligned)
        .map(|(text, alignment)| Cell::from(Text::from(text).alignment(alignment)))
        .collect()
}

fn title(view: &View) -> Paragraph<'static> {
    let n = |n: usize, what: &str| match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    };
    let counts = [
        n(view.jobs.len(), "job"),
        n(view.ranks.len(), "rank"),
        n(view.agents.len(), "agent"),
    ];
    let missing = match view.absent.len() {
        0 => String::new(),
        n => format!(", {n} without an answer"),
    };
    Paragraph::new(format!("bothends top: {}{missing}", counts.join(", ")))
}

fn absent(absent: &[Absent]) -> Paragraph<'static> {
    let line = |it: &Absent| Line::from(format!("{}: {}", it.endpoint, it.why));
    let mut lines: Vec<Line<'static>> = absent.iter().take(3).map(line).collect();
    if absent.len() > 3 {
        lines[2] = Line::from(format!("… {} more without an answer", absent.len() - 2));
    }
    Paragraph::new(lines).style(Style::new().fg(Color::Red))
}

fn is_starved(fed: &Fed) -> bool {
    fed.stalled.is_some_and(|stalled| stalled >= MUCH)
}

/// What the columns of jobs and ranks have in common.
fn fed(name: String, count: String, fed: &Fed) -> [String; 7] {
    let cause = fed.cause.filter(|_| fed.stalled.is_some_and(|stalled| stalled >= 0.005));
    [
        name,
        count,
        rate(fed.rate),
        rate(fed.need),
        percent(fed.by_devices),
        percent(fed.stalled),
        cause.unwrap_or("-").to_owned(),
    ]
}

/// Those that wait most come first.
fn jobs(jobs: &[Job]) -> Section {
    let mut jobs: Vec<&Job> = jobs.iter().collect();
    jobs.sort_by(|a, b| by_stall(&a.fed, &b.fed));
    let row = |job: &&Job| fed(job.run.clone(), job.n_ranks.to_string(), &job.fed);
    Section {
        heading: ["JOB", "ranks", "images/s", "need", "devices", "stalled", "waits for"],
        rows: jobs.iter().map(row).collect(),
        marked: jobs.iter().map(|job| is_starved(&job.fed)).collect(),
    }
}

fn ranks(ranks: &[Rank]) -> Section {
    let mut ranks: Vec<&Rank> = ranks.iter().collect();
    ranks.sort_by(|a, b| by_stall(&a.fed, &b.fed));
    let row = |rank: &&Rank| {
        let name = format!("{} {}", rank.endpoint, rank.rank);
        let epoch = format!("{} {:>3.0}%", rank.epoch, rank.done * 100.0);
        fed(name, epoch, &rank.fed)
    };
    Section {
        heading: ["RANK", "epoch", "images/s", "need", "devices", "stalled", "waits for"],
        rows: ranks.iter().map(row).collect(),
        marked: ranks.iter().map(|rank| is_starved(&rank.fed)).collect(),
    }
}

fn by_stall(a: &Fed, b: &Fed) -> std::cmp::Ordering {
    b.stalled.unwrap_or(-1.0).total_cmp(&a.stalled.unwrap_or(-1.0))
}

fn agents(agents: &[Agent]) -> Section {
    let row = |agent: &Agent| {
        let name = match &agent.runs[..] {
            [] => agent.endpoint.clone(),
            [run] => format!("{} {run}", agent.endpoint),
            runs => format!("{} {} runs", agent.endpoint, runs.len()),
        };
        [
            name,
            agent.hosts.to_string(),
            rate(agent.rate),
            agent.workers.map_or("-".to_owned(), |workers| format!("{workers:.1}")),
            agent.queue.to_string(),
            megabytes(agent.read),
            agent.refused.to_string(),
        ]
    };
    Section {
        heading: ["AGENT", "hosts", "images/s", "workers", "queue", "MB/s", "refused"],
        rows: agents.iter().map(row).collect(),
        marked: vec![false; agents.len()],
    }
}

/// With a comma for thousands.
fn rate(rate: Option<f64>) -> String {
    let Some(rate) = rate else { return "-".to_owned() };
    let digits = format!("{rate:.0}");
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".to_owned(), |part| format!("{:.0}%", part * 100.0))
}

fn megabytes(bytes: Option<f64>) -> String {
    bytes.map_or("-".to_owned(), |bytes| format!("{:.1}", bytes / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::{agent_text, look, rank_text};

    fn view() -> View {
        let before = look(
            0.0,
            &[
                Ok(rank_text(0, [0, 0], 0.0)),
                Ok(rank_text(1, [0, 0], 0.0)),
                Ok(agent_text(0, 0.0)),
            ],
        );
        let now = look(
            2.0,
            &[
                Ok(rank_text(0, [1800, 200], 0.0)),
                Ok(rank_text(1, [3000, 0], 0.5)),
                Ok(agent_text(200, 3.0)),
                Err("connection refused"),
            ],
        );
        View::of(Some(&before), &now)
    }

    #[test]
    fn a_frame_has_all_rows_in_eighty_columns() {
        let expected = "\
bothends top: 1 job, 2 ranks, 1 agent, 1 without an answer

JOB                      ranks  images/s      need  devices  stalled waits for
job-7                        2     2,500     3,000       4%      25%    decode

RANK                     epoch  images/s      need  devices  stalled waits for
node1:9100 1            4  25%     1,500     2,000       0%      25%    decode
node0:9100 0            4  25%     1,000     1,000      10%       0%         -

AGENT                    hosts  images/s   workers    queue     MB/s   refused
node2:9100 job-7             2       100       1.5        5      0.1         3
node3:9100: connection refused
";
        let shown = text(&view(), (80, 24));
        assert_eq!(squeezed(&shown), squeezed(expected), "\n{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "\n{shown}");
        assert!(shown.lines().count() <= 24);
    }

    /// With single spaces.
    fn squeezed(text: &str) -> String {
        let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_does_not_fit_is_counted_and_every_section_has_rows() {
        let text_of = |n: u64| Ok(rank_text(u32::try_from(n).unwrap(), [n, 0], 0.0));
        let mut texts: Vec<Result<String, &str>> = (0..100).map(text_of).collect();
        texts.extend((0..50).map(|n| Ok(agent_text(n, 0.0))));
        texts.extend((0..9).map(|_| Err("no answer in time")));
        let shown = text(&View::of(None, &look(1.0, &texts)), (80, 24));
        assert!(shown.lines().count() <= 24, "\n{shown}");
        for line in ["job-7 100", "… 94 more", "… 45 more", "… 7 more without an answer"]
        {
            assert!(squeezed(&shown).contains(line), "{line}\n{shown}");
        }
    }

    #[test]
    fn an_agent_of_several_runs_says_how_many() {
        let other = "bothends_agent_run_sessions{run=\"job-8\",job=\"\"} 1\n";
        let texts = [Ok(agent_text(0, 0.0) + other)];
        let shown = text(&View::of(None, &look(1.0, &texts)), (80, 24));
        assert!(shown.contains("node0:9100 2 runs"), "\n{shown}");
    }

    #[test]
    fn it_draws_on_any_screen() {
        for size in [(0, 0), (1, 1), (5, 2), (20, 6), (80, 3), (300, 100)] {
            let shown = text(&view(), size);
            assert!(shown.lines().count() <= usize::from(size.1).max(1), "{size:?}");
        }
        assert_eq!(
            text(&View::default(), (80, 24)),
            "bothends top: 0 jobs, 0 ranks, 0 agents\n"
        );
    }

    #[test]
    fn thousands_have_commas() {
        for (value, text) in
            [(0.4, "0"), (999.0, "999"), (1000.0, "1,000"), (1_234_567.0, "1,234,567")]
        {
            assert_eq!(rate(Some(value)), text);
        }
    }
}
