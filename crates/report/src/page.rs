//! The page, section by section: this file is its table of contents.
//!
//! One file, no script, no network; light or dark as the reader's system is.

mod ends;
mod energy;
mod frame;
mod glossary;
pub(crate) mod markup;
mod settings;
mod speed;
mod stall;
mod strips;

use self::markup::{entry, escape, escape_json, origin_tag, tag};
use crate::figure::{BOTH_ENDS, number, or_none, percent};
use crate::{ReportInput, StrategyRun, columns};

/// The report as one HTML page that needs no other file. The data it was drawn from lies
/// in it as JSON, in the element with the id `data`.
#[must_use]
pub fn html(input: &ReportInput) -> String {
    let sections = [
        opening(input),
        section("How fast", SPEED_TEXT, &speed::chart(input)),
        section("How fast, over time", RATE_TEXT, &strips::RATE.draw(input)),
        section("Two ends meeting", ENDS_TEXT, &ends::plots(input)),
        section("What the accelerator waited for", STALL_TEXT, &stall::chart(input)),
        section(
            "What waited for the accelerator",
            WAITING_TEXT,
            &strips::WAITING.draw(input),
        ),
        section("Processors of the host", CORES_TEXT, &strips::CORES.draw(input)),
        section("Memory of the host", MEMORY_TEXT, &strips::MEMORY.draw(input)),
        section("Energy", ENERGY_TEXT, &energy::charts(input)),
        section("All figures", TABLE_TEXT, &columns::html_table(input)),
        section("The same data?", SAME_TEXT, &same(input)),
        section("Words", "", &glossary::list(input)),
        section("What the run was told", SETTINGS_TEXT, &settings::table(input)),
        section("How to make this page again", "", &origin(input)),
    ];
    let body = format!("<main>\n{}</main>\n{}", sections.concat(), data(input));
    document(&input.title, "", &body)
}

/// A whole page, in the style of all pages and what is added to it.
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

const SPEED_TEXT: &str =
    "Images that reached the accelerator per second. Longer is better.";
const RATE_TEXT: &str = "The same, interval by interval. All plots of this page have one time axis: \
    the one that ends farther left was faster.";
const ENDS_TEXT: &str = "Each dot is a batch. Blue ones were prepared by the host, orange ones by \
    the device; a small point is the moment in which the accelerator received the batch.";
const STALL_TEXT: &str = "Seconds of the epoch in which the accelerator had nothing to do, by what \
    it was waiting for. Shorter is better.";
const WAITING_TEXT: &str = "Finished batches that lay ready. Where there are none, the accelerator \
    takes batches faster than they are made; a hill of the device's is work done ahead of time.";
const CORES_TEXT: &str = "How many processors the host process used. What a device does is not in it; \
    what it takes to receive the device's batches is.";
const MEMORY_TEXT: &str = "The host process, pages that it shares counted in part (PSS). Batches \
    take no more of it than their budget, however long the run.";
const ENERGY_TEXT: &str = "Of the whole run. Meters and models are kept apart: a model's figure is as \
    good as its coefficients, and its line says from where to where it may be wrong.";
const SETTINGS_TEXT: &str =
    "The same settings, data and release give the same stream again.";
const TABLE_TEXT: &str = "Front and back are batches that were delivered, by who prepared them. \
    The small words say where a column's figures come from. On a narrow screen the table moves sideways.";
const SAME_TEXT: &str = "Preparing images elsewhere must not change them. The accelerator's input \
    was checked by checksum.";

fn section(heading: &str, text: &str, body: &str) -> String {
    let text = if text.is_empty() {
        String::new()
    } else {
        format!("<p>{}</p>\n", escape(text))
    };
    format!("<section>\n<h2>{}</h2>\n{text}{body}</section>\n", escape(heading))
}

/// Heading, the result in a sentence, what is going on here, and the honest note.
fn opening(input: &ReportInput) -> String {
    let headline =
        headline(input).map(|h| format!("<p class=\"headline\">{}</p>\n", escape(&h)));
    let note = match (input.note.as_str(), input.gaps.as_slice()) {
        ("", []) => String::new(),
        (note, gaps) => {
            let gaps =
                gaps.iter().map(|gap| format!(" <strong>{}</strong>", escape(gap)));
            let gaps: String = gaps.collect();
            format!("<p class=\"note\"><b>Please note.</b> {}{gaps}</p>\n", escape(note))
        }
    };
    format!(
        "<header>\n<h1>{}</h1>\n{}{}<p>Before a network can learn from images, somebody must \
         read, decode and crop them. Often the host's processors are too slow for that, and the \
         accelerator waits. bothends lets a second processor, beside the data, prepare part of \
         every epoch: the host works from the front, the device from the back, and the \
         accelerator receives one stream.</p>\n{PICTURE}{note}</header>\n",
        escape(&input.title),
        headline.unwrap_or_default(),
        cards(input),
    )
}

/// Host and device on an epoch of batches, drawn.
const PICTURE: &str = "<svg class=\"picture\" viewBox=\"0 0 360 54\" role=\"img\" \
    aria-label=\"The host takes batches from the front of the epoch, the device from the back.\">\
    <path class=\"front\" d=\"M8 20h14M29 20h14M50 20h14M71 20h14M92 20h14M113 20h14M134 20h14\
    M155 20h14M176 20h14M197 20h14M218 20h14M239 20h14\"/>\
    <path class=\"back\" d=\"M281 20h14M302 20h14M323 20h14M344 20h10\"/>\
    <path class=\"free\" d=\"M260 20h14\"/>\
    <text x=\"6\" y=\"46\">host → from the front</text>\
    <text x=\"354\" y=\"46\" text-anchor=\"end\">from the back ← device</text></svg>\n";

/// The run to speak of: the default strategy if it ran, else the fastest with a device.
fn best(input: &ReportInput) -> Option<&StrategyRun> {
    let with_device = || input.runs.iter().filter(|run| run.strategy != "cpu");
    with_device().find(|run| run.strategy == "ordered").or_else(|| {
        with_device().max_by(|a, b| a.images_per_s.total_cmp(&b.images_per_s))
    })
}

/// The result in a sentence.
fn headline(input: &ReportInput) -> Option<String> {
    let run = best(input)?;
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
            "Here the second end did not help: {name} delivered {rate} images per second, the \
             host alone {host}."
        )
    })
}

/// The four figures to remember.
fn cards(input: &ReportInput) -> String {
    let Some(run) = best(input) else { return String::new() };
    let tag = tag(BOTH_ENDS, input);
    let card = |name: &str, figure: String, tag: &str| {
        format!(
            "<div><b>{}</b><span>{}</span>{tag}</div>\n",
            escape(&figure),
            escape(name)
        )
    };
    let share = |run: &StrategyRun| or_none(run.utilisation, percent);
    let before = input.host_alone().map(share).unwrap_or_default();
    let busy = format!("accelerator busy (host alone: {before})");
    format!(
        "<div class=\"cards\">\n{}{}{}{}</div>\n",
        card("images per second", number(run.images_per_s), &tag),
        card("× the host alone", or_none(input.speed_up(run), number), &tag),
        card(&busy, share(run), &tag),
        card("of the best possible rate (η)", or_none(run.efficiency, percent), &tag),
    )
}

/// What the digests say.
fn same(input: &ReportInput) -> String {
    let content = ReportInput::agree(input.runs.iter(), |run| &run.content_digest);
    let in_order = input
        .runs
        .iter()
        .filter(|run| matches!(run.strategy.as_str(), "cpu" | "ordered"));
    let stream = ReportInput::agree(in_order, |run| &run.stream_digest);
    let verdicts = [
        verdict(
            content,
            "Every strategy delivered the same images, each exactly once, to the last bit.",
            "The strategies delivered different images. This is a bug: please report it.",
        ),
        verdict(
            stream,
            "cpu and ordered delivered them in the same order, too: one and the same stream.",
            "cpu and ordered delivered different streams. This is a bug: please report it.",
        ),
    ];
    format!("<ul class=\"verdicts\">\n{}</ul>\n", verdicts.concat())
}

fn verdict(agree: Option<bool>, yes: &str, no: &str) -> String {
    let (class, text) = match agree {
        Some(true) => ("yes", yes),
        Some(false) => ("no", no),
        None => {
            ("unknown", "Not checked: fewer than two runs have a checksum to compare.")
        }
    };
    format!("<li class=\"{class}\">{} {}</li>\n", escape(text), origin_tag("measured"))
}

fn origin(input: &ReportInput) -> String {
    let entries = [
        entry("command", &format!("<code>{}</code>", escape(&input.command))),
        entry("machine", &escape(&input.machine)),
        entry("date", &escape(&input.date)),
        entry("release", &format!("bothends {}", escape(&input.version))),
    ];
    format!(
        "<dl>\n{}</dl>\n<p>The data of every figure lies in this page as JSON, in the element \
         <code>#data</code>.</p>\n",
        entries.concat()
    )
}

/// The input itself. Numbers that JSON has no form for leave it empty.
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
        let [name, source, ..] = &mut input.energy[..] else { panic!("energy") };
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
        assert!(html(&input).contains("the second end did not help"));
    }

    #[test]
    fn a_report_with_holes_is_still_a_page() {
        let mut input = example::input();
        input.alone = None;
        for run in &mut input.runs {
            (run.utilisation, run.efficiency, run.images_per_s) = (None, None, 0.0);
            run.events.clear();
            (run.stall, run.cpu_ms_per_image, run.peak_rss_bytes) = (None, None, None);
            run.rate.clear();
            run.waiting.clear();
            run.cores.clear();
            run.memory.clear();
        }
        input.energy.clear();
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
