//! The page, section by section: this file is its table of contents.
//!
//! It is one file without scripts or network access, light or dark like the reader's system.

mod ends;
mod energy;
mod fetches;
mod frame;
mod glossary;
mod horizon;
pub(crate) mod markup;
mod same;
mod settings;
mod speed;
mod strips;
mod time;

use self::markup::{entry, escape, escape_json, tag};
use crate::figure::{BOTH_ENDS, number, percent};
use crate::{ReportInput, StrategyRun, columns};

/// The report as one self-contained HTML page. The data from which it was drawn are embedded as JSON, in
/// the element with the id `data`.
#[must_use]
pub fn html(input: &ReportInput) -> String {
    let plots = |heading, text, plots: Option<String>| {
        plots.map_or_else(String::new, |plots| section(heading, text, &plots))
    };
    let sections = [
        opening(input),
        section("How fast", SPEED_TEXT, &speed::chart(input)),
        section("How fast, over time", RATE_TEXT, &strips::RATE.draw(input)),
        section("Where the time went", time::text(input), &time::chart(input)),
        plots("Two ends meeting", ENDS_TEXT, ends::plots(input)),
        plots("Inside the moving horizon", HORIZON_TEXT, horizon::plots(input)),
        section(
            "Batches ready ahead of time",
            WAITING_TEXT,
            &strips::WAITING.draw(input),
        ),
        section("Host CPU", CORES_TEXT, &strips::CORES.draw(input)),
        section("Host memory", &memory_text(input), &strips::MEMORY.draw(input)),
        section("Energy", ENERGY_TEXT, &energy::charts(input)),
        plots("Fetched from the store", FETCHES_TEXT, fetches::list(input)),
        section("All figures", TABLE_TEXT, &columns::html_table(input)),
        section("The same data?", SAME_TEXT, &same::verdicts(input)),
        section("Glossary", "", &glossary::list(input)),
        section("Settings", SETTINGS_TEXT, &settings::table(input)),
        section("Provenance", "", &origin(input)),
    ];
    let body = format!("<main>\n{}</main>\n{}", sections.concat(), data(input));
    document(&input.title, "", &body)
}

/// A whole page, with the common style and an addition to it.
pub(crate) fn document(title: &str, style: &str, body: &str) -> String {
    const STYLE: &str = include_str!("page.css");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n{body}</body>\n\
         </html>\n",
        escape(title),
    )
}

const SPEED_TEXT: &str = "Images delivered per second. Longer is better.";
const RATE_TEXT: &str = "Throughput per interval. All plots on this page share one time axis, so an \
    epoch that ends farther left was faster.";
const ENDS_TEXT: &str = "Host workers walk the epoch from the front, devices from the back, until \
    they meet. Each dot is a finished batch; a small point marks the moment it was delivered.";
const HORIZON_TEXT: &str = "ordered delivers in plan order, so the two ends meet again and again \
    inside a horizon that moves with delivery: the host takes the batches needed next, a device \
    claims batches farther ahead and has them ready when their turn comes.";
const WAITING_TEXT: &str = "Finished batches in the queue. Where it is empty, the accelerator takes \
    batches faster than they are made; a hill of device batches is work done ahead of time.";
const CORES_TEXT: &str = "CPU cores in use by the host process. What a device computes is not \
    included; the host's work to receive its batches is.";
const MEMORY_TEXT: &str = "Proportional set size (PSS) of the host process. Batches stay within \
    their memory budget, however long the run.";
const ONE_PROCESS_TEXT: &str = " These epochs ran one after another in one process, which keeps \
    memory it has taken: a curve starts at what the epochs before it left, and its peak includes that.";
const ENERGY_TEXT: &str = "Measured and modelled joules are never added up. A modelled figure is as \
    good as its coefficients: whiskers show its range. Epochs under one profile share its errors, \
    so their ratio is worth more than their ranges side by side.";
const FETCHES_TEXT: &str = "Records of the whole run that were requested from the remote store, and \
    for how long nothing more could be requested: as many requests or bytes as may be were in \
    flight, what had come filled its memory, failed requests waited, or all that was known to be \
    needed was requested.";
const SETTINGS_TEXT: &str =
    "The same settings, data and release reproduce the same stream.";
const TABLE_TEXT: &str = "Front and back count delivered batches by who made them. The label under \
    a heading says where its figures come from. Peak RSS includes memory that earlier epochs of the \
    same process kept. On a narrow screen the table scrolls sideways.";
const SAME_TEXT: &str = "Preprocessing images elsewhere must not change them: with checksums \
    (--digest), epochs of the same samples can be compared byte for byte. With --audit the host \
    makes samples of device batches again and compares them.";

/// With a sentence on what one epoch leaves to the next, if there are several.
fn memory_text(input: &ReportInput) -> String {
    let more = if input.runs.len() > 1 { ONE_PROCESS_TEXT } else { "" };
    format!("{MEMORY_TEXT}{more}")
}

fn section(heading: &str, text: &str, body: &str) -> String {
    let text = if text.is_empty() {
        String::new()
    } else {
        format!("<p>{}</p>\n", escape(text))
    };
    format!("<section>\n<h2>{}</h2>\n{text}{body}</section>\n", escape(heading))
}

/// The heading, the result in a sentence, an explanation, and caveats.
fn opening(input: &ReportInput) -> String {
    let headline =
        headline(input).map(|h| format!("<p class=\"headline\">{}</p>\n", escape(&h)));
    let gaps = input.gaps.iter().map(|gap| format!(" <strong>{}</strong>", escape(gap)));
    let note = format!("{}{}", escape(&input.note), gaps.collect::<String>());
    let note = match note.trim() {
        "" => String::new(),
        note => format!("<p class=\"note\"><b>Please note.</b> {note}</p>\n"),
    };
    format!(
        "<header>\n<h1>{}</h1>\n{}{}{}{note}</header>\n",
        escape(&input.title),
        headline.unwrap_or_default(),
        cards(input),
        about(input),
    )
}

/// Who fed the accelerator in this run, in words and as a diagram.
fn about(input: &ReportInput) -> String {
    let has_back = input.runs.iter().any(|run| run.back_batches > 0);
    let picture = match input.runs.iter().any(ends::walks_from_both_ends) {
        _ if !has_back => "",
        true => TWO_ENDS,
        false => HORIZON,
    };
    let how = match has_back {
        true => {
            "bothends gives them a second prong: a device next to the data preprocesses part \
            of every epoch, and the accelerator receives one stream"
        }
        false => {
            "In this run the host worked alone; a device next to the data could take part \
            of every epoch off it"
        }
    };
    format!(
        "<p>Before a network can train on images, they must be read, decoded and augmented. When \
         the host's CPUs cannot keep up, the accelerator starves. {how}.</p>\n{picture}"
    )
}

/// A diagram of host and device on the batches of an epoch.
const TWO_ENDS: &str = "<svg class=\"picture\" viewBox=\"0 0 360 54\" role=\"img\" \
    aria-label=\"The host takes batches from the front of the epoch, the device from the back.\">\
    <path class=\"front\" d=\"M8 20h14M29 20h14M50 20h14M71 20h14M92 20h14M113 20h14M134 20h14\
    M155 20h14M176 20h14M197 20h14M218 20h14M239 20h14\"/>\
    <path class=\"back\" d=\"M281 20h14M302 20h14M323 20h14M344 20h10\"/>\
    <path class=\"free\" d=\"M260 20h14\"/>\
    <text x=\"6\" y=\"46\">host → from the front</text>\
    <text x=\"354\" y=\"46\" text-anchor=\"end\">from the back ← device</text></svg>\n";

/// The same inside the moving horizon of `ordered`.
const HORIZON: &str = "<svg class=\"picture\" viewBox=\"0 0 360 54\" role=\"img\" \
    aria-label=\"In plan order: batches delivered, those the host makes next, those the device has \
    claimed ahead of it, and those nobody has begun.\">\
    <path class=\"done\" d=\"M8 20h14M29 20h14M50 20h14M71 20h14\"/>\
    <path class=\"front\" d=\"M92 20h14M113 20h14M134 20h14M155 20h14\"/>\
    <path class=\"back\" d=\"M176 20h14M197 20h14M218 20h14\"/>\
    <path class=\"free\" d=\"M239 20h14M260 20h14M281 20h14M302 20h14M323 20h14M344 20h10\"/>\
    <text x=\"6\" y=\"46\">delivered</text><text x=\"92\" y=\"46\">host, next</text>\
    <text x=\"174\" y=\"46\">device, ahead</text>\
    <text x=\"354\" y=\"46\" text-anchor=\"end\">not begun</text></svg>\n";

/// The run to highlight: the default strategy if it ran, or else the fastest; with a device if any
/// strategy had one.
fn best(input: &ReportInput) -> Option<&StrategyRun> {
    let with_device = || input.runs.iter().filter(|run| run.strategy != "cpu");
    with_device()
        .find(|run| run.strategy == "ordered")
        .or_else(|| {
            with_device().max_by(|a, b| a.images_per_s.total_cmp(&b.images_per_s))
        })
        .or_else(|| input.runs.first())
}

/// The result in a sentence, if there is something to compare.
fn headline(input: &ReportInput) -> Option<String> {
    let run = best(input).filter(|run| run.strategy != "cpu")?;
    let speed_up = input.speed_up(run)?;
    let host = number(input.host_alone()?.images_per_s);
    let rate = number(run.images_per_s);
    let name = &run.strategy;
    Some(if speed_up >= 1.01 {
        format!(
            "Fed from both ends ({name}), the accelerator received {rate} images per second \
             instead of {host}: {} × the host alone.",
            number(speed_up)
        )
    } else {
        format!(
            "Here the second prong did not help: {name} delivered {rate} images per second, the \
             host alone {host}."
        )
    })
}

/// The key figures that exist.
fn cards(input: &ReportInput) -> String {
    let Some(run) = best(input) else { return String::new() };
    let tag = tag(BOTH_ENDS, input);
    let mut cards = vec![("images per second".to_owned(), number(run.images_per_s))];
    if let Some(speed_up) = input.speed_up(run).filter(|_| run.strategy != "cpu") {
        cards.push(("× the host alone".to_owned(), number(speed_up)));
    }
    if let Some(utilisation) = run.utilisation {
        let host = input.host_alone().filter(|_| run.strategy != "cpu");
        let host = host.and_then(|host| host.utilisation);
        let host = host.map(|share| format!(" (host alone: {})", percent(share)));
        let name = format!("accelerator utilisation{}", host.unwrap_or_default());
        cards.push((name, percent(utilisation)));
    }
    if let Some(efficiency) = run.efficiency {
        // Each prong is measured by itself for a few seconds before the run.
        let why = match efficiency > 1.0 {
            true => {
                "; above 100 %: the prongs ran faster in the epoch than measured alone"
            }
            false => "",
        };
        let name = format!("of the best possible rate (η){why}");
        cards.push((name, percent(efficiency)));
    }
    if let (Some(cpu_ms), 1 | 2) = (run.cpu_ms_per_image, cards.len()) {
        cards.push(("ms of host CPU per image".to_owned(), number(cpu_ms)));
    }
    let card = |(name, figure): &(String, String)| {
        let (name, figure) = (escape(name), escape(figure));
        format!("<div><b>{figure}</b><span>{name}</span>{tag}</div>\n")
    };
    let cards: String = cards.iter().map(card).collect();
    format!("<div class=\"cards\">\n{cards}</div>\n")
}

fn origin(input: &ReportInput) -> String {
    let entries = [
        entry("command", &format!("<code>{}</code>", escape(&input.command))),
        entry("machine", &escape(&input.machine)),
        entry("date", &escape(&input.date)),
        entry("release", &format!("bothends {}", escape(&input.version))),
    ];
    format!(
        "<dl>\n{}</dl>\n<p>The data behind every figure is in this page as JSON, in the element \
         <code>#data</code>.</p>\n",
        entries.concat()
    )
}

/// The input itself; empty if it has numbers that JSON cannot express.
fn data(input: &ReportInput) -> String {
    let json = input.to_json().map(|json| escape_json(&json)).unwrap_or_default();
    format!("<script type=\"application/json\" id=\"data\">\n{json}\n</script>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_page_holds_the_very_data_it_was_drawn_from() {
        let mut input = example::input();
        input.title = "</script><script>alert('x')".to_owned();
        let page = html(&input);
        let json =
            page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
        assert_eq!(ReportInput::from_json(json).unwrap(), input);
    }

    #[test]
    fn the_page_asks_nothing_of_anybody() {
        let page = html(&example::input());
        for forbidden in
            ["http:", "https:", "src=", "url(", "@import", "<link", "<script>"]
        {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn everything_is_escaped() {
        let evil = "<img src=x onerror=\"1\">&'";
        let mut input = example::input();
        let [name, source, ..] = &mut input.energy.domains[..] else { panic!("energy") };
        for text in [
            &mut name.name,
            &mut source.source,
            &mut input.title,
            &mut input.note,
            &mut input.machine,
            &mut input.command,
            &mut input.date,
            &mut input.version,
        ] {
            *text = evil.to_owned();
        }
        input.gaps.push(evil.to_owned());
        input.config.insert(evil.to_owned(), evil.into());
        for run in &mut input.runs {
            for text in
                [&mut run.strategy, &mut run.stream_digest, &mut run.content_digest]
            {
                *text = evil.to_owned();
            }
        }
        let page = html(&input);
        assert!(!page.contains("<img"), "markup from the input");
        assert!(!page.contains("onerror=\""), "an attribute from the input");
        assert!(page.contains("&lt;img src=x onerror=&quot;1&quot;&gt;&amp;&#39;"));
    }

    #[test]
    fn every_figure_says_where_it_comes_from() {
        let page = html(&example::input());
        for section in page.split("<section>").skip(1).take(10) {
            let heading = section.split("</h2>").next().unwrap();
            assert!(section.contains("class=\"tag "), "{heading}");
        }
        let headings =
            page.split("<thead>").nth(1).unwrap().split("</thead>").next().unwrap();
        assert_eq!(
            headings.matches("<th scope").count(),
            headings.matches("class=\"tag ").count() + 1,
            "all columns but the name"
        );
    }

    #[test]
    fn a_difference_is_called_a_bug() {
        let mut input = example::input();
        assert!(html(&input).contains("one and the same stream"));
        input.runs[1].stream_digest = "c".repeat(32);
        let page = html(&input);
        assert!(
            page.contains("class=\"no\">cpu and ordered delivered different streams")
        );
        assert!(page.contains("class=\"yes\">Every strategy"));
    }

    #[test]
    fn a_device_that_does_not_help_is_said_to() {
        let mut input = example::input();
        input.runs[1].images_per_s = 190.0;
        assert!(html(&input).contains("the second prong did not help"));
    }

    #[test]
    fn a_run_alone_has_no_empty_tile_and_no_comparison() {
        let mut input = example::input();
        input.runs.remove(0);
        input.emulated.clear();
        input.alone = None;
        let run = &mut input.runs[0];
        (run.utilisation, run.efficiency, run.busy_s) = (None, None, Some(0.0));
        let cards = cards(&input);
        assert_eq!(cards.matches("<b>").count(), 2, "{cards}");
        let page = html(&input);
        for gone in ["host alone:", "<b>–</b>", "The strategies delivered"] {
            assert!(!page.contains(gone), "{gone}");
        }
        assert!(
            page.contains("ordered aaaaaaaaaa…"),
            "its checksum, to compare elsewhere"
        );
        input.runs[0].stream_digest.clear();
        input.runs[0].content_digest.clear();
        assert!(html(&input).contains("this run kept no checksums"));
    }

    #[test]
    fn a_share_above_the_best_possible_has_its_reason() {
        let mut input = example::input();
        input.runs[1].efficiency = Some(1.125);
        let page = html(&input);
        assert!(page.contains("112.5 %") && page.contains("above 100 %: the prongs ran"));
        input.runs[1].efficiency = Some(0.98);
        assert!(!html(&input).contains("above 100 %"));
    }

    #[test]
    fn epochs_of_other_samples_are_not_called_different() {
        let mut input = example::input();
        input.runs[0].strategy = "ordered".to_owned();
        (input.runs[1].epoch, input.runs[1].content_digest) = (1, "d".repeat(32));
        input.runs[1].stream_digest = "e".repeat(32);
        let page = html(&input);
        assert!(!page.contains("This is a bug"), "another epoch has other crops");
        assert!(page.contains("no other epoch here has the same samples"));
    }

    /// The sums that a reader may check: on the page, in its JSON, and between the two.
    #[test]
    fn the_figures_of_a_page_add_up() {
        let page = html(&example::input());
        let json = page.split("id=\"data\">").nth(1).unwrap();
        let input =
            ReportInput::from_json(json.split("</script>").next().unwrap()).unwrap();
        for run in &input.runs {
            let (busy_s, idle_s) = (run.busy_s.unwrap(), run.idle_s.unwrap());
            let stall = run.stall.unwrap();
            assert!((busy_s + idle_s - run.seconds).abs() < 1e-9, "{}", run.strategy);
            assert!((stall.total() - idle_s).abs() < 1e-9, "{}", run.strategy);
            let share = busy_s / (busy_s + run.stall_s.unwrap());
            assert!((run.utilisation.unwrap() - share).abs() < 1e-9);
            assert!(page.contains(&percent(share)), "{share} stands on the page");
            let n_batches = run.front_batches + run.back_batches;
            assert_eq!(n_batches, 40, "as many as the example delivers");
            let images: f64 =
                run.rate.iter().map(|step| step.value * (step.to_s - step.from_s)).sum();
            #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
            let samples = run.samples as f64;
            assert!((images - samples).abs() < 1e-6, "{images} of {samples}");
            assert!((run.images_per_s * run.seconds - samples).abs() < 1e-6);
            let of_run = run.energy.as_ref().unwrap();
            for energy in [of_run, &input.energy] {
                for total in &energy.totals {
                    let parts =
                        energy.domains.iter().filter(|d| d.source == total.source);
                    let sum: f64 = parts.map(|domain| domain.joules).sum();
                    assert!((sum - total.joules).abs() < 1e-9, "{total:?}");
                }
            }
        }
        let whole: Vec<f64> = input.runs.iter().map(|run| run.seconds).collect();
        for (run, seconds) in input.runs.iter().zip(whole) {
            let stall = run.stall.unwrap();
            let words = format!(
                "{} computing + {} waiting + {} own = {} s",
                number(run.busy_s.unwrap()),
                number(stall.waited()),
                number(stall.consumer),
                number(seconds)
            );
            assert!(page.contains(&words), "{words}");
        }
    }

    #[test]
    fn a_report_with_holes_is_still_a_page() {
        let mut input = example::input();
        input.alone = None;
        for run in &mut input.runs {
            (run.utilisation, run.efficiency, run.images_per_s) = (None, None, 0.0);
            run.events.clear();
            (run.stall, run.cpu_ms_per_image, run.peak_rss_bytes) = (None, None, None);
            run.energy = None;
            run.rate.clear();
            run.waiting.clear();
            run.cores.clear();
            run.memory.clear();
        }
        input.energy = bothends_figures::Energy::default();
        for _ in 0..3 {
            let page = html(&input);
            assert!(page.ends_with("</html>\n"));
            assert!(!page.contains("NaN") && !page.contains("inf "), "{page}");
            input.runs.pop();
        }
    }

    #[test]
    fn json_comes_back_as_it_went() {
        let input = example::input();
        assert_eq!(ReportInput::from_json(&input.to_json().unwrap()).unwrap(), input);
        let whole = html(&input).len();
        assert!(whole < 200_000, "{whole} bytes for 80 batches");
        let error = ReportInput::from_json("{\"title\": 3}").unwrap_err();
        assert!(error.to_string().starts_with("cannot read the report's JSON"));
    }
}
