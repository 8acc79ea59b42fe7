//! A plan for a pool of agents: how many a number of jobs needs, what must come over the host's link, and what
//! the agents cost, with the arithmetic shown.
//!
//! It plays nothing: the number is `bothends_core::pool::size`, from rates that were measured one by one. What
//! agents lose by sharing a storage server or an uplink is not known here; `simulate --scenario` plays it.

use bothends_core::pool::size::{Bounds, Need, demand, wanted};
use serde::Serialize;

use super::{
    AcceleratorFigures, DeviceFigures, Doubt, HostFigures, Question, three_digits,
};

/// What is made beyond what consumers take.
const MARGIN: f64 = 0.1;

/// What is asked.
#[derive(Debug, Clone, Serialize)]
pub struct PoolQuestion {
    /// The host of each job.
    pub host: HostFigures,
    /// One agent.
    pub agent: DeviceFigures,
    /// What each job feeds.
    pub accelerator: AcceleratorFigures,
    /// Bytes of a sample as an agent sends it.
    pub sample_bytes: u64,
    /// Jobs that share the pool.
    pub jobs: u32,
    /// What an hour of an agent costs, in any currency.
    pub price: Option<f64>,
    /// Why the host's figures cannot be trusted, if so.
    #[serde(skip)]
    pub doubt: Option<Doubt>,
}

/// The answer. Scripts rely on the keys of its JSON.
#[derive(Debug, Clone, Serialize)]
pub struct PoolPlan {
    /// The question, and the figures on which the answer is based.
    pub question: PoolQuestion,
    /// What is made beyond what consumers take, as a fraction of that.
    pub margin: f64,
    /// What each job lacks, in images per second.
    pub missing_images_per_s: f64,
    /// The number of agents for all jobs.
    pub agents: u32,
    /// The fewest and the most, with the figures at their ends.
    pub agents_ends: (u32, u32),
    /// The part of the time for which these agents work.
    pub busy: f64,
    /// Bytes per second that each job's host receives.
    pub host_bytes_per_s: f64,
    /// Bytes per second that each agent sends.
    pub agent_bytes_per_s: f64,
    /// Processors of each job's host that receiving takes, if it was measured.
    pub receiving_processors: Option<f64>,
    /// The price of a million images of the jobs, if a price was given.
    pub price_per_million_images: Option<f64>,
}

impl PoolQuestion {
    /// The question for a number of jobs like the one of a question about devices.
    #[must_use]
    pub fn of(question: &Question, sample_bytes: u64, jobs: u32) -> Self {
        Self {
            doubt: question.doubt(),
            host: question.host.clone(),
            agent: question.device.clone(),
            accelerator: question.accelerator.clone(),
            sample_bytes,
            jobs,
            price: None,
        }
    }

    /// Computes the plan.
    #[must_use]
    pub fn plan(self) -> PoolPlan {
        let (host, agent) = (self.host.images_per_s, self.agent.images_per_s);
        let missing = self.missing(host);
        let agents = self.agents(host, agent);
        let (slow, fast) = (self.host.ends.low, self.host.ends.high);
        let ends = (
            self.agents(fast, self.agent.ends.high),
            self.agents(slow, self.agent.ends.low),
        );
        let comes = missing.min(f64::from(agents) * agent / f64::from(self.jobs.max(1)));
        #[allow(clippy::cast_precision_loss, reason = "a sample has not so many bytes")]
        let sample_bytes = self.sample_bytes as f64;
        let busy = match agents {
            0 => 0.0,
            n => f64::from(self.jobs) * missing / (f64::from(n) * agent),
        };
        let receiving = self.agent.receiving_cpu_ms_per_image;
        let images_per_hour =
            self.accelerator.images_per_s * 3600.0 * f64::from(self.jobs);
        PoolPlan {
            margin: MARGIN,
            missing_images_per_s: missing,
            agents,
            agents_ends: ends,
            busy,
            host_bytes_per_s: comes * sample_bytes,
            agent_bytes_per_s: agent * sample_bytes,
            receiving_processors: receiving.map(|ms| comes * ms / 1e3),
            price_per_million_images: self
                .price
                .map(|price| price * f64::from(agents) / images_per_hour * 1e6),
            question: self,
        }
    }

    fn missing(&self, host: f64) -> f64 {
        demand(&[Need { consumer: self.accelerator.images_per_s, host }], MARGIN)
    }

    fn agents(&self, host: f64, agent: f64) -> u32 {
        let all = self.missing(host) * f64::from(self.jobs);
        wanted(all, Some(agent), Bounds { min: 0, max: u32::MAX })
    }
}

impl PoolPlan {
    /// The plan as plain text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let PoolQuestion { host, agent, accelerator, jobs, doubt, .. } = &self.question;
        let rate = three_digits;
        let mut lines = vec![
            format!(
                "Each job takes {} images/s ({}); its host makes {} with {} workers ({}).",
                rate(accelerator.images_per_s),
                accelerator.name,
                host.ends.rates(),
                host.workers,
                host.source
            ),
            format!(
                "An agent like {} makes {} images/s ({}{}).",
                agent.name,
                agent.ends.rates(),
                agent.source,
                if agent.is_uncalibrated { "; its speed is uncalibrated" } else { "" }
            ),
            format!(
                "A job lacks {} x {:.2} - {} = {} images/s.",
                rate(accelerator.images_per_s),
                1.0 + self.margin,
                rate(host.images_per_s),
                rate(self.missing_images_per_s)
            ),
        ];
        if self.missing_images_per_s <= 0.0 {
            lines.push("Agents: none; the host feeds the accelerator.".to_owned());
        } else {
            lines.push(self.agents_line(*jobs));
            lines.push(self.link_line());
        }
        if let Some(processors) = self.receiving_processors.filter(|it| *it > 0.0) {
            lines.push(format!(
                "Receiving takes {processors:.1} of the {} processors of each host.",
                host.processors
            ));
        }
        lines.extend(self.price_line());
        if let Some(doubt) = doubt {
            lines.push(format!(
                "Measure again before you buy, because {}.",
                doubt.reason()
            ));
        }
        lines.join("\n") + "\n"
    }

    fn agents_line(&self, jobs: u32) -> String {
        let (fewest, most) = self.agents_ends;
        let sum = format!(
            "{jobs} x {} / {}",
            three_digits(self.missing_images_per_s),
            three_digits(self.question.agent.images_per_s)
        );
        format!(
            "Agents: {sum}, rounded up: {}, busy {:.0} % of the time; {fewest} to {most} with all \
             figures at their ends.",
            self.agents,
            self.busy * 100.0
        )
    }

    fn link_line(&self) -> String {
        let link = self.question.agent.link_images_per_s;
        let slow = link.filter(|link| *link <= self.question.agent.images_per_s * 1.1);
        let limit = slow.map_or_else(String::new, |link| {
            format!(
                " An agent's link carries {} images/s and is its limit.",
                three_digits(link)
            )
        });
        format!(
            "Link: {} bytes per image; each host receives {}, each agent sends {}.{limit}",
            self.question.sample_bytes,
            bits(self.host_bytes_per_s),
            bits(self.agent_bytes_per_s)
        )
    }

    fn price_line(&self) -> Option<String> {
        let price = self.question.price?;
        let per_million = self.price_per_million_images?;
        Some(format!(
            "Price: {} agents x {price} = {:.2} per hour, {per_million:.2} per million images.",
            self.agents,
            price * f64::from(self.agents)
        ))
    }
}

fn bits(bytes_per_s: f64) -> String {
    format!("{:.2} Gb/s", bytes_per_s * 8.0 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::super::Interval;
    use super::super::tests::question;
    use super::*;

    /// A host of 2,000 images/s, an agent of 500, an accelerator of 7,144.
    fn measured(jobs: u32) -> PoolQuestion {
        let mut question = question(2000.0, 500.0, 7144.0);
        question.host.ends = Interval { low: 1900.0, high: 2100.0 };
        question.device.ends = Interval { low: 450.0, high: 550.0 };
        question.device.receiving_cpu_ms_per_image = Some(0.1);
        PoolQuestion::of(&question, 150_528, jobs)
    }

    #[test]
    fn the_plan_is_the_arithmetic_that_it_shows() {
        let plan = measured(1).plan();
        assert!((plan.missing_images_per_s - 5858.4).abs() < 1e-6, "{plan:?}");
        assert_eq!(plan.agents, 12); // 5858.4 / 500 = 11.7
        // (7858.4 - 2100) / 550 = 10.5 and (7858.4 - 1900) / 450 = 13.2
        assert_eq!(plan.agents_ends, (11, 14));
        assert!((plan.busy - 0.9764).abs() < 1e-6, "{plan:?}");
        assert!((plan.host_bytes_per_s - 5858.4 * 150_528.0).abs() < 1.0, "{plan:?}");
        let text = plan.text();
        for line in [
            "A job lacks 7140 x 1.10 - 2000 = 5860 images/s.",
            "Agents: 1 x 5860 / 500, rounded up: 12, busy 98 % of the time; 11 to 14 with all \
             figures at their ends.",
            "Link: 150528 bytes per image; each host receives 7.05 Gb/s, each agent sends 0.60 \
             Gb/s.",
            "Receiving takes 0.6 of the ",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("Price"), "{text}");
    }

    #[test]
    fn jobs_share_what_is_rounded_up() {
        let mut question = measured(10);
        question.price = Some(0.5);
        let plan = question.plan();
        assert_eq!(plan.agents, 118); // 117.2, and not ten times 12
        let text = plan.text();
        // 59 an hour for ten times 7144 * 3600 images.
        let line = "Price: 118 agents x 0.5 = 59.00 per hour, 0.23 per million images.";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_host_that_feeds_its_accelerator_needs_no_pool() {
        let plan = PoolQuestion::of(&question(8000.0, 500.0, 7144.0), 1, 5).plan();
        assert_eq!((plan.agents, plan.agents_ends), (0, (0, 0)));
        assert!(plan.text().contains("Agents: none"), "{}", plan.text());
    }

    #[test]
    fn figures_that_cannot_be_trusted_are_not_hidden() {
        let mut question = question(2000.0, 500.0, 7144.0);
        question.host.conditions = None;
        let text = PoolQuestion::of(&question, 1, 1).plan().text();
        assert!(text.contains("Measure again before you buy, because "), "{text}");
    }
}
