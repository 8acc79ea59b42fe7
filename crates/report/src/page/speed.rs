//! The bar chart of rates: each strategy compared with the host alone and with the best rate that any
//! strategy could reach.

use crate::Emulated;
use crate::ReportInput;
use crate::figure::{BOTH_ENDS, MEASURED, Origin, number};
use crate::page::markup::{bar_line, bar_piece, share, tag};

/// Bars of images per second, on the same scale.
pub(crate) fn chart(input: &ReportInput) -> String {
    let bound =
        input.alone.map(|alone| alone.bound_images_per_s()).filter(|b| b.is_finite());
    let rates = input.runs.iter().map(|run| run.images_per_s);
    let longest = rates.chain(bound).filter(|rate| rate.is_finite()).fold(0.0, f64::max);
    let percent = |rate: f64| share(rate, longest, 96.0);
    let mark = |rate: Option<f64>, class: &str| {
        rate.map_or_else(String::new, |rate| {
            bar_piece(class, percent(rate) - 0.3, percent(rate) + 0.3)
        })
    };
    let host = input.host_alone().map(|run| run.images_per_s);
    let mut chart = String::from("<div class=\"bars\" data-plot=\"speed\">\n");
    for (run, name) in input.runs.iter().zip(input.names()) {
        let class = if run.strategy == "cpu" { "front" } else { "both" };
        let bar = bar_piece(class, 0.0, percent(run.images_per_s));
        let marks = mark(host, "host-mark") + &mark(bound, "bound-mark");
        let speed_up = input.speed_up(run).map(|s| format!(" · {} ×", number(s)));
        let figure =
            format!("{}/s{}", number(run.images_per_s), speed_up.unwrap_or_default());
        chart += &bar_line(&name, &(bar + &marks), &figure);
    }
    chart + "</div>\n" + &legend(input)
}

/// The meaning of the marks, with their figures.
fn legend(input: &ReportInput) -> String {
    let mut legend = String::from("<p class=\"legend\">");
    if input.host_alone().is_some() {
        legend +=
            "<span class=\"key host-mark\"></span>the host alone (<code>cpu</code>) ";
    }
    if let Some(alone) = &input.alone {
        let front = number(alone.front_images_per_s);
        let bound = number(alone.bound_images_per_s());
        legend += &format!(
            "<span class=\"key bound-mark\"></span>the best possible, {bound} images/s: the host \
             alone makes {front} {}",
            tag(MEASURED, input),
        );
        if let Some(rate) = alone.back_images_per_s {
            let tag = tag(Origin::MeasuredWith(&[Emulated::Device]), input);
            legend += &format!(", the device alone {} {tag}", number(rate));
        }
        if let Some(rate) = alone.accelerator_images_per_s {
            let tag = tag(Origin::ModelOf(Emulated::Accelerator), input);
            legend += &format!(", the accelerator takes {} {tag}", number(rate));
        }
        legend.push_str(". ");
    }
    legend + &format!("Bars: {}</p>\n", tag(BOTH_ENDS, input))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_best_possible_is_explained_by_what_was_measured_alone() {
        let mut input = example::input();
        let both = chart(&input);
        assert!(
            both.contains("the host alone makes") && both.contains("the device alone")
        );
        input.alone.as_mut().unwrap().back_images_per_s = None;
        let host = chart(&input);
        assert!(
            host.contains("the host alone makes") && !host.contains("the device alone")
        );
        input.alone = None;
        let unknown = chart(&input);
        assert!(
            !unknown.contains("the best possible") && !unknown.contains("bound-mark")
        );
    }
}
