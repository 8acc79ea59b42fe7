//! Who watches a run: the bar and the recorder always, the event file and the metrics where they
//! are asked for.

pub(crate) mod bar;
pub(crate) mod date;
pub(crate) mod events;
pub(crate) mod metrics;
pub(crate) mod otlp;
pub(crate) mod recorder;

use bothends_runtime::{Ended, Moment, Observer, Progress};

use self::bar::Bar;
use self::events::EventFile;
use self::metrics::MetricsServer;
use self::otlp::OtlpTrace;
use self::recorder::Recorder;
use crate::signals::Received;

/// All of them; each is told everything.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) bar: Bar,
    pub(crate) recorder: Recorder,
    pub(crate) events: Option<EventFile>,
    pub(crate) metrics: Option<MetricsServer>,
    pub(crate) otlp: Option<OtlpTrace>,
    pub(crate) signals: Option<Received>,
}

impl Watch {
    fn all(&mut self) -> impl Iterator<Item = &mut dyn Observer> {
        let events = self.events.as_mut().map(|events| events as &mut dyn Observer);
        let metrics = self.metrics.as_mut().map(|metrics| metrics as &mut dyn Observer);
        let otlp = self.otlp.as_mut().map(|otlp| otlp as &mut dyn Observer);
        let signals = self.signals.as_mut().map(|signals| signals as &mut dyn Observer);
        let always: [&mut dyn Observer; 2] = [&mut self.bar, &mut self.recorder];
        // Before the events: who sees one may send a signal.
        signals.into_iter().chain(always).chain(events).chain(metrics).chain(otlp)
    }
}

impl Observer for Watch {
    fn phase(&mut self, what: &str) {
        self.all().for_each(|observer| observer.phase(what));
    }

    fn batch(&mut self, progress: Progress) {
        self.all().for_each(|observer| observer.batch(progress));
    }

    fn note(&mut self, text: &str) {
        self.all().for_each(|observer| observer.note(text));
    }

    fn begin(&mut self, progress: Progress) {
        self.all().for_each(|observer| observer.begin(progress));
    }

    fn moments(&mut self, moments: &[Moment]) {
        self.all().for_each(|observer| observer.moments(moments));
    }

    fn end(&mut self, ended: Ended<'_>) {
        self.all().for_each(|observer| observer.end(ended));
    }

    fn asks_for_energy(&self) -> bool {
        self.metrics.is_some()
    }
}
