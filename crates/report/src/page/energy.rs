//! Energy: if strategies were compared, joules per image of each, relative to the host alone; otherwise
//! the joules of the run by domain. Measured and modelled energy have separate charts, without common
//! bars or sums.
//!
//! The bars of a chart add up to its total, and no joule is in two of them.

use bothends_figures::{Energy, EnergyDomain};

use crate::figure::number;
use crate::page::frame::{tick_label, ticks};
use crate::page::markup::{self, bar_piece, escape, legend, origin_tag, share};
use crate::{Emulated, ReportInput};

/// The kind of a figure.
struct Kind {
    /// The start of the source of such a figure.
    start: &'static str,
    heading: &'static str,
    name: &'static str,
    tag: &'static str,
    /// Shown in place of a missing chart.
    nothing: &'static str,
}

/// The first that matches. A figure without a known kind must not be taken for measured.
const KINDS: [Kind; 3] = [
    Kind {
        start: "measured(",
        heading: "Measured by a meter",
        name: "energy-measured",
        tag: "measured",
        nothing: "No meter could be read in this run; <code>bothends doctor</code> says why.",
    },
    Kind {
        start: "modelled(",
        heading: "Modelled from what was counted",
        name: "energy-modelled",
        tag: "modelled",
        nothing: "There is no modelled energy for this run.",
    },
    Kind {
        start: "",
        heading: "Of unknown origin",
        name: "energy-unknown",
        tag: "",
        nothing: "",
    },
];

/// Parts of the system by their class in the style sheet, with the words that occur in the names of their
/// domains; the first match counts. Bars have this order.
const PARTS: [(&str, &str, &[&str]); 6] = [
    ("memory", "memory", &["memory", "dram", "ram"]),
    ("cpu", "host processors", &["processor", "package", "pkg"]),
    ("storage", "storage", &["storage"]),
    ("device", "devices and their links", &["device"]),
    ("accelerator", "accelerator and its link", &["accelerator", "gpu"]),
    ("other", "the rest", &[""]),
];

/// One chart for each kind of figure.
pub(crate) fn charts(input: &ReportInput) -> String {
    let charts: String = KINDS
        .iter()
        .map(|kind| match kind.is_measured() {
            true => chart(input, kind) + &remarks(&input.energy.remarks),
            false => chart(input, kind),
        })
        .collect();
    charts + &said_by_devices(&input.energy.devices)
}

/// What a reader of measured figures must know: which meters are missing, and what was metered besides.
fn remarks(remarks: &[String]) -> String {
    if remarks.is_empty() {
        return String::new();
    }
    let remarks: Vec<String> = remarks.iter().map(|remark| escape(remark)).collect();
    format!("<p class=\"nothing\">Remarks: {}.</p>\n", remarks.join("; "))
}

impl Kind {
    fn is_of(&self, source: &str) -> bool {
        let first = KINDS.iter().find(|kind| source.starts_with(kind.start));
        first.is_some_and(|first| first.name == self.name)
    }

    fn is_measured(&self) -> bool {
        self.name == KINDS[0].name
    }

    /// Whether a ratio of two strategies' figures is the device's doing. A meter counts the emulation of
    /// a device with the host, or does not know of it; a model knows both.
    fn compares(&self, input: &ReportInput) -> bool {
        !(self.is_measured() && input.emulated.contains(&Emulated::Device))
    }

    /// By how many images the energy of a run is divided, of which so many are its own: each rank of a
    /// machine has the same meters, and images of its own. `None` where their number is not known.
    fn n_images(&self, energy: &Energy, own: u64) -> Option<u64> {
        match self.is_measured() {
            true => Some(own.saturating_mul(energy.quantities.host.ranks?.into())),
            false => Some(own),
        }
    }

    /// The sum of this kind, and its parts from the largest to the smallest.
    fn account<'a>(&self, energy: &'a Energy) -> Option<Account<'a>> {
        let of_kind = energy.domains.iter().filter(|figure| self.is_of(&figure.source));
        let total = energy.totals.iter().find(|total| self.is_of(&total.source));
        let total = total.map(|total| EnergyDomain::from(total.clone()));
        let is_added = |figure: &&EnergyDomain| {
            total.as_ref().is_none_or(|total| adds(&total.source, &figure.source))
        };
        let (mut parts, mut beside): (Vec<_>, Vec<_>) = of_kind.partition(is_added);
        let descending =
            |a: &&EnergyDomain, b: &&EnergyDomain| b.joules.total_cmp(&a.joules);
        parts.sort_by(descending);
        beside.sort_by(descending);
        let is_empty = parts.is_empty() && beside.is_empty();
        (!is_empty).then_some(Account { total, parts, beside })
    }
}

/// Whether a sum includes a figure: `measured(a:x + b:y)` includes `measured(b:y)`, and `modelled(p@1)`
/// includes everything from the profile.
fn adds(sum: &str, figure: &str) -> bool {
    let inner =
        |source: &str| Some(source.split_once('(')?.1.strip_suffix(')')?.to_owned());
    let inner = inner(sum).zip(inner(figure));
    sum == figure || inner.is_some_and(|(sum, f)| sum.split(" + ").any(|one| one == f))
}

/// The energy that was used, each joule once.
struct Account<'a> {
    total: Option<EnergyDomain>,
    /// The domains that add up to the total, if it is known.
    parts: Vec<&'a EnergyDomain>,
    /// Parts of those, or of something unknown.
    beside: Vec<&'a EnergyDomain>,
}

fn chart(input: &ReportInput, kind: &Kind) -> String {
    let Kind { heading, name, nothing, .. } = kind;
    let tag = if kind.tag.is_empty() { String::new() } else { origin_tag(kind.tag) };
    let of_run = || {
        let n_images = kind.n_images(&input.energy, input.n_images());
        kind.account(&input.energy)?.chart(n_images)
    };
    let body = match by_strategy(input, kind).or_else(of_run) {
        Some(chart) => chart,
        None if nothing.is_empty() => return String::new(),
        None => {
            return format!("<h3>{heading}</h3>\n<p class=\"nothing\">{nothing}</p>\n");
        }
    };
    format!("<h3>{heading} {tag}</h3>\n<div data-plot=\"{name}\">\n{body}</div>\n")
}

/// Joules per image of every strategy, smallest first; `None` if epochs have no figures of their own.
fn by_strategy(input: &ReportInput, kind: &Kind) -> Option<String> {
    let mut rows = Vec::new();
    for (run, name) in input.runs.iter().zip(input.names()) {
        let Some(energy) = &run.energy else { continue };
        let account = kind.account(energy).zip(kind.n_images(energy, run.samples));
        let Some((account, n_images)) = account else { continue };
        let Some(total) = account.total.as_ref().and_then(|t| t.per_image(n_images))
        else {
            continue;
        };
        let parts = account.by_part(n_images);
        rows.push((name, run.strategy == "cpu", total, parts));
    }
    rows.sort_by(|a, b| a.2.joules.total_cmp(&b.2.joules));
    let longest = longest(rows.iter().map(|(_, _, total, _)| total))?;
    let host = rows.iter().find(|(_, is_host, ..)| *is_host);
    let host = host.filter(|_| kind.compares(input)).map(|(_, _, total, _)| total.joules);
    let mut chart = String::new();
    for (name, _, total, parts) in &rows {
        let (mut pieces, mut end) = (String::new(), 0.0);
        for (class, joules) in parts {
            let start = end;
            end += joules;
            pieces += &bar_piece(class, scaled(start, longest), scaled(end, longest));
        }
        let against = host.map(|host| total.joules / host).filter(|r| r.is_finite());
        let against = against.map(|r| format!(" · {} × the host alone", number(r)));
        let words = format!("{}{}", total.words("J/image"), against.unwrap_or_default());
        chart += &row(name, "", &(pieces + &total.whisker(longest)), &words);
    }
    let is_used = |class: &str| rows.iter().any(|row| row.3.iter().any(|p| p.0 == class));
    let keys = PARTS.iter().filter(|(class, ..)| is_used(class));
    let keys: Vec<_> = keys.map(|(class, words, _)| (*class, *words)).collect();
    Some(rows_and_axis(&chart, longest, "J/image") + &legend(&keys, ""))
}

impl Account<'_> {
    /// Bars of joules with the total above and the axis below, followed by what is not in any sum; `None` if no
    /// joule was counted.
    fn chart(&self, n_images: Option<u64>) -> Option<String> {
        let all = self.total.iter().chain(self.parts.iter().copied());
        let all = all.chain(self.beside.iter().copied());
        let longest = longest(all)?;
        let bar = |figure: &EnergyDomain, class: &str| {
            let bar = bar_piece(class, 0.0, scaled(figure.joules, longest));
            let words = figure.words("J");
            row(&figure.name, &figure.source, &(bar + &figure.whisker(longest)), &words)
        };
        let mut rows = String::new();
        if let Some(total) = &self.total {
            let of_all = n_images.and_then(|n_images| total.per_image(n_images));
            let of_all = of_all.map(|f| f.words("J/image"));
            let of_all = of_all.map(|words| format!(" · {words}")).unwrap_or_default();
            let piece = bar_piece("total", 0.0, scaled(total.joules, longest));
            let words = format!("{}{of_all}", total.words("J"));
            let bar = piece + &total.whisker(longest);
            rows += &row("all of it", &total.source, &bar, &words);
        }
        self.parts.iter().for_each(|figure| rows += &bar(figure, part(&figure.name)));
        let mut chart = rows_and_axis(&rows, longest, "J");
        if !self.beside.is_empty() {
            let others: String =
                self.beside.iter().map(|figure| bar(figure, "other")).collect();
            chart += &format!(
                "<p>In no sum, as these are parts of the above or of an unknown place:</p>\n\
                 <div class=\"joules\">\n{others}</div>\n"
            );
        }
        Some(chart)
    }

    /// Joules per image by part of the system, in the order of [`PARTS`].
    fn by_part(&self, n_images: u64) -> Vec<(&'static str, f64)> {
        let of = |class: &'static str| {
            let parts = self.parts.iter().filter(|figure| part(&figure.name) == class);
            let per_image = parts.filter_map(|figure| figure.per_image(n_images));
            (class, per_image.map(|figure| figure.joules).sum::<f64>())
        };
        let all = PARTS.iter().map(|(class, ..)| of(class));
        all.filter(|(_, joules)| *joules > 0.0).collect()
    }
}

/// The class of the part to which a domain belongs.
fn part(domain: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| domain.contains(word));
    PARTS.iter().find(|(.., words)| has(words)).map_or("other", |(class, ..)| class)
}

/// The text and drawing of an [`EnergyDomain`].
trait Shown: Sized {
    fn per_image(&self, n_images: u64) -> Option<Self>;
    fn words(&self, unit: &str) -> String;
    fn whisker(&self, longest: f64) -> String;
}

impl Shown for EnergyDomain {
    #[expect(clippy::cast_precision_loss, reason = "2^53 images are beyond any run")]
    fn per_image(&self, n_images: u64) -> Option<Self> {
        let of_one = |joules: f64| joules / n_images as f64;
        let (joules, low, high) =
            (of_one(self.joules), of_one(self.low), of_one(self.high));
        joules.is_finite().then(|| Self { joules, low, high, ..self.clone() })
    }

    fn words(&self, unit: &str) -> String {
        let ends = format!(" ({} to {})", number(self.low), number(self.high));
        let ends = if self.low < self.high { ends } else { String::new() };
        format!("{} {unit}{ends}", number(self.joules))
    }

    /// A line from `low` to `high` with a stop at each end.
    fn whisker(&self, longest: f64) -> String {
        if self.low >= self.high {
            return String::new();
        }
        let (low, high) = (scaled(self.low, longest), scaled(self.high, longest));
        let piece = |x: f64, y: f64, width: f64, height: f64| {
            format!(
                "<rect class=\"whisker\" x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" \
                 height=\"{height}\"/>"
            )
        };
        piece(low, 4.4, high - low, 1.2)
            + &piece(low, 2.5, 0.3, 5.0)
            + &piece(high, 2.5, 0.3, 5.0)
    }
}

/// The end of a chart's scale: the largest figure or upper end; `None` without any.
fn longest<'a>(figures: impl Iterator<Item = &'a EnergyDomain>) -> Option<f64> {
    let ends = figures.flat_map(|figure| [figure.joules, figure.high]);
    let longest = ends.filter(|joules| joules.is_finite()).fold(0.0, f64::max);
    (longest > 0.0).then_some(longest)
}

/// Percent of a bar's width.
fn scaled(value: f64, longest: f64) -> f64 {
    share(value, longest, 98.0)
}

/// A line of a chart; `name`, `source` and `words` are plain text.
fn row(name: &str, source: &str, pieces: &str, words: &str) -> String {
    format!(
        "<div class=\"joule\"><span class=\"name\">{}</span><span class=\"source\">{}</span>{}\
         <span class=\"figure\">{}</span></div>\n",
        escape(name),
        escape(source),
        markup::bar(pieces),
        escape(words),
    )
}

/// Percent of the width up to which a label may have its middle at its mark. One further on ends there: on a narrow page
/// half of it would not fit.
const MIDDLED: f64 = 90.0;

fn rows_and_axis(rows: &str, longest: f64, unit: &str) -> String {
    let mark = |value: f64| {
        let (left, label) = (scaled(value, longest), tick_label(value));
        let unit = if value > 0.0 { String::new() } else { format!(" {unit}") };
        let class = if left > MIDDLED { " class=\"end\"" } else { "" };
        format!("<span{class} style=\"left:{left:.2}%\">{label}{unit}</span>")
    };
    let marks: String = ticks(longest, 4).into_iter().map(mark).collect();
    format!("<div class=\"joules\">\n{rows}<div class=\"scale\">{marks}</div>\n</div>\n")
}

/// What devices report themselves, in words: another view, by a model or a meter, of the same joules that
/// the charts show as `device N`.
fn said_by_devices(domains: &[EnergyDomain]) -> String {
    if domains.is_empty() {
        return String::new();
    }
    let said: Vec<String> = domains
        .iter()
        .map(|figure| format!("{} {}", escape(&figure.name), figure.words("J")))
        .collect();
    format!(
        "<p class=\"nothing\">The devices' own account of the whole run, in no sum, because the \
         charts already have the devices' energy: {}.</p>\n",
        said.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    /// The start and width of each piece of a class, in percent of a bar.
    fn pieces(chart: &str, class: &str) -> Vec<(f64, f64)> {
        let number = |text: &str, name: &str| -> f64 {
            let after = text.split(&format!("{name}=\"")).nth(1).unwrap();
            after.split('"').next().unwrap().parse().unwrap()
        };
        let start = format!("<rect class=\"{class}\"");
        let starts = chart.split(&start).skip(1);
        starts.map(|text| (number(text, " x"), number(text, "width"))).collect()
    }

    /// The input as parsed from the page's JSON, with strategies that were compared.
    fn compared() -> ReportInput {
        ReportInput::from_json(&example::input().to_json().unwrap()).unwrap()
    }

    /// The same without figures of single epochs.
    fn one_run() -> ReportInput {
        let mut input = compared();
        input.runs.iter_mut().for_each(|run| run.energy = None);
        input
    }

    #[test]
    fn the_bars_of_a_run_add_up_to_its_total_and_are_sorted() {
        let input = one_run();
        let chart = chart(&input, &KINDS[1]);
        let total =
            input.energy.totals.iter().find(|t| t.source == "modelled(default@1)");
        let scale = 98.0 / total.unwrap().high;
        let drawn: Vec<f64> = PARTS
            .iter()
            .flat_map(|(class, ..)| pieces(&chart, class))
            .map(|(_, width)| width)
            .collect();
        let whole = pieces(&chart, "total");
        assert_eq!((drawn.len(), whole.len()), (3, 1), "{chart}");
        assert!((drawn.iter().sum::<f64>() - whole[0].1).abs() < 0.05, "{drawn:?}");
        assert!((whole[0].1 - scale * total.unwrap().joules).abs() < 0.02);
        let order = [">host processors<", ">device 0, work<", ">memory<"];
        let at = order.map(|name| chart.find(name).unwrap());
        assert!(at.is_sorted(), "{chart}");
        assert_eq!(pieces(&chart, "whisker").len(), 3 * 4, "an interval each");
        assert!(chart.contains("J/image") && chart.contains("class=\"scale\""));
    }

    /// A run of 1.5 J had its last label half beyond the edge of a narrow page.
    #[test]
    fn a_label_at_the_end_of_a_scale_ends_there() {
        let chart = rows_and_axis("", 1.5, "J");
        assert!(
            chart.contains("<span class=\"end\" style=\"left:98.00%\">1.5</span>"),
            "{chart}"
        );
        assert_eq!(chart.matches("class=\"end\"").count(), 1, "{chart}");
    }

    #[test]
    fn strategies_are_compared_per_image_and_with_the_host_alone() {
        let input = compared();
        let chart = chart(&input, &KINDS[1]);
        // 0.06 and 0.05 joules per image, from the example.
        let ordered = chart.find(">ordered<").unwrap();
        assert!(ordered < chart.find(">cpu<").unwrap(), "the least comes first: {chart}");
        assert!(chart.contains("0.833 × the host alone"), "{chart}");
        assert!(chart.contains("1.00 × the host alone"), "{chart}");
        for run in &input.runs {
            let energy = run.energy.as_ref().unwrap();
            let parts: f64 = energy.domains.iter().map(|figure| figure.joules).sum();
            assert!((parts - energy.totals[0].joules).abs() < 1e-9);
        }
    }

    /// Every strategy metered, with a device that is a process of this machine or a real one.
    #[test]
    fn what_a_meter_says_of_an_emulated_device_is_no_gain_or_loss() {
        let mut input = compared();
        for run in &mut input.runs {
            let energy = run.energy.as_mut().unwrap();
            for figure in &mut energy.domains {
                "measured(rapl:package-0)".clone_into(&mut figure.source);
            }
            "measured(rapl:package-0)".clone_into(&mut energy.totals[0].source);
        }
        input.energy.remarks = vec!["measured joules include <1> device".to_owned()];
        assert!(!chart(&input, &KINDS[0]).contains("the host alone"));
        let charts = charts(&input);
        let (measured, modelled) = charts.split_once(KINDS[1].heading).unwrap();
        let remark = "Remarks: measured joules include &lt;1&gt; device.";
        assert!(measured.contains(remark) && !modelled.contains("Remarks"), "{charts}");
        input.emulated.retain(|part| *part != Emulated::Device);
        assert!(chart(&input, &KINDS[0]).contains("0.833 × the host alone"));
    }

    #[test]
    fn a_rank_has_its_part_of_what_the_meters_of_its_machine_counted() {
        let mut input = one_run();
        let per_image = |input: &ReportInput| {
            let chart = chart(input, &KINDS[0]);
            let (joules, _) = chart.split_once(" J/image")?;
            joules.rsplit(' ').next()?.parse::<f64>().ok()
        };
        let alone = per_image(&input).unwrap();
        input.energy.quantities.host.ranks = Some(4);
        let one = per_image(&input).unwrap();
        assert!((4.0 * one - alone).abs() < 0.01 * alone, "{one} of {alone}");
        input.energy.quantities.host.ranks = None;
        assert_eq!(per_image(&input), None);
    }

    #[test]
    fn each_joule_is_counted_once() {
        let mut input = one_run();
        let (metered, mut sum) =
            (input.energy.domains[0].clone(), input.energy.totals[0].clone());
        let rapl = |name: &str, joules| EnergyDomain {
            name: name.to_owned(),
            source: format!("measured(rapl:{name})"),
            joules,
            ..metered.clone()
        };
        let domains = ["package-0", "package-0/core", "dram"].map(|name| rapl(name, 9.0));
        "measured(rapl:package-0 + rapl:dram)".clone_into(&mut sum.source);
        let energy =
            Energy { domains: domains.into(), totals: vec![sum], ..Energy::default() };
        let account = KINDS[0].account(&energy).unwrap();
        let names = |figures: &[&EnergyDomain]| -> Vec<String> {
            figures.iter().map(|figure| figure.name.clone()).collect()
        };
        assert_eq!(names(&account.parts), ["package-0", "dram"]);
        assert_eq!(names(&account.beside), ["package-0/core"]);
        // The profile has the device's energy; what the device reports is shown next to the charts.
        input.energy.devices = vec![rapl("device 0 idle", 7.0)];
        let charts = charts(&input);
        let (bars, words) = charts.split_once("own account").unwrap();
        assert!(
            words.contains("device 0 idle 7.00 J") && !bars.contains("device 0 idle")
        );
    }

    #[test]
    fn measured_and_modelled_never_share_a_chart() {
        let charts = charts(&one_run());
        let (measured, modelled) = charts.split_once(KINDS[1].heading).unwrap();
        assert!(measured.contains("rapl:package-0") && !measured.contains("modelled("));
        assert!(modelled.contains("default@1") && !modelled.contains("measured("));
        assert!(!measured.contains("whisker"), "a meter's figure has no interval here");
    }

    #[test]
    fn what_does_not_say_where_it_comes_from_is_not_called_measured() {
        let mut input = one_run();
        input.energy.domains[0].source = "a guess".to_owned();
        input.energy.totals.remove(0);
        let charts = charts(&input);
        assert!(charts.contains("No meter could be read in this run"));
        assert!(charts.split(KINDS[2].heading).nth(1).unwrap().contains("a guess"));
        (input.energy.domains, input.energy.totals) = (Vec::new(), Vec::new());
        assert!(!super::charts(&input).contains("data-plot"));
    }

    #[test]
    fn every_modelled_domain_belongs_to_a_part() {
        for (domain, class) in [
            ("host processors, idle", "cpu"),
            ("host memory", "memory"),
            ("storage, reads", "storage"),
            ("device 0, work", "device"),
            ("device to host", "device"),
            ("host to accelerator", "accelerator"),
            ("accelerator, idle", "accelerator"),
            ("package-0", "cpu"),
            ("package-0/dram", "memory"),
            ("energy-ram/cpu0", "memory"),
            ("gpu-1", "accelerator"),
            ("psys", "other"),
        ] {
            assert_eq!(part(domain), class, "{domain}");
        }
    }
}
