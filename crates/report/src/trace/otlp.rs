//! A run's epochs as spans of OpenTelemetry, in the JSON of its protocol (OTLP 1.x): one export request
//! after another, which a collector takes at `/v1/traces` or, one on a line, from a file.
//!
//! All ranks of a run have one trace. A rank's epoch is a span; the making of each batch is a child of it,
//! and so is the step from one delivery to the next. Ids are made of names and numbers, so the
//! same run has the same ones.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use bothends_figures::{Moment, What};

use crate::record::EpochRecord;

/// Spans in one request: some 200 kB.
const MOST_SPANS: usize = 500;

/// `SPAN_KIND_INTERNAL`.
const INTERNAL: u32 = 1;
/// `STATUS_CODE_ERROR`.
const ERROR: u32 = 2;

/// Whose spans they are.
#[derive(Debug, Clone)]
pub struct Spans {
    resource: Value,
    version: String,
    run: String,
    rank: u32,
}

/// A span before it is JSON. Times are nanoseconds since 1970.
#[derive(Debug)]
struct Span {
    name: &'static str,
    /// What its id is made of, besides run, rank and epoch.
    key: String,
    from_ns: u64,
    to_ns: u64,
    attributes: Vec<Value>,
    is_lost: bool,
}

impl Spans {
    /// Of this rank of a run, made by this release of the program.
    #[must_use]
    pub fn new(version: &str, rank: u32, run: &str) -> Self {
        let attributes = [
            text("service.name", "bothends"),
            text("service.version", version),
            text("service.instance.id", &format!("{run}/{rank}")),
            text("bothends.run", run),
            number("bothends.rank", rank.into()),
        ];
        Self {
            resource: json!({"attributes": attributes}),
            version: version.to_owned(),
            run: run.to_owned(),
            rank,
        }
    }

    /// The requests that hold an epoch, which began at this time in nanoseconds since 1970.
    #[must_use]
    pub fn epoch(&self, epoch: &EpochRecord, began_ns: u64) -> Vec<String> {
        let parent = self.id(epoch, "epoch");
        let whole = whole(epoch, began_ns);
        let spans = children(epoch, began_ns);
        let spans: Vec<Value> = std::iter::once(self.span(epoch, &whole, None))
            .chain(spans.iter().map(|span| self.span(epoch, span, Some(&parent))))
            .collect();
        spans.chunks(MOST_SPANS).map(|spans| self.request(spans)).collect()
    }

    fn request(&self, spans: &[Value]) -> String {
        let scope = json!({"name": "bothends", "version": self.version});
        json!({"resourceSpans": [{
            "resource": self.resource,
            "scopeSpans": [{"scope": scope, "spans": spans}],
        }]})
        .to_string()
    }

    fn span(&self, epoch: &EpochRecord, span: &Span, parent: Option<&str>) -> Value {
        let mut value = json!({
            "traceId": format!("{:032x}", hash(self.run.as_bytes())),
            "spanId": self.id(epoch, &span.key),
            "name": span.name,
            "kind": INTERNAL,
            // The protocol has 64-bit integers as texts.
            "startTimeUnixNano": span.from_ns.to_string(),
            "endTimeUnixNano": span.to_ns.max(span.from_ns).to_string(),
            "attributes": span.attributes,
        });
        if let Some(parent) = parent {
            value["parentSpanId"] = parent.into();
        }
        if span.is_lost {
            value["status"] = json!({"code": ERROR, "message": "the device failed"});
        }
        value
    }

    fn id(&self, epoch: &EpochRecord, key: &str) -> String {
        let EpochRecord { epoch, strategy, .. } = epoch;
        let name = format!("{}\n{}\n{epoch}\n{strategy}\n{key}", self.run, self.rank);
        // Half of the hash; an id of zeros is none.
        format!("{:016x}", (hash(name.as_bytes()) >> 64).max(1))
    }
}

fn whole(epoch: &EpochRecord, began_ns: u64) -> Span {
    let last_s = epoch.moments.last().map_or(0.0, |moment| moment.t_s);
    let mut attributes = vec![
        number("bothends.epoch", epoch.epoch.into()),
        text("bothends.strategy", &epoch.strategy),
        number("bothends.batches", epoch.n_batches.into()),
    ];
    if epoch.moments_cut > 0 {
        attributes.push(number("bothends.moments_cut", epoch.moments_cut));
    }
    Span {
        name: "epoch",
        key: "epoch".to_owned(),
        from_ns: began_ns,
        to_ns: began_ns.saturating_add(nanoseconds(epoch.seconds().max(last_s))),
        attributes,
        is_lost: false,
    }
}

fn children(epoch: &EpochRecord, began_ns: u64) -> Vec<Span> {
    let mut open: BTreeMap<(Option<u16>, u32), (f64, bool)> = BTreeMap::new();
    let mut delivered_s = 0.0;
    let mut spans = Vec::new();
    let at = |seconds: f64| began_ns.saturating_add(nanoseconds(seconds));
    for moment in &epoch.moments {
        let key = (moment.device, moment.batch);
        match moment.what {
            What::Claimed | What::Rescued => {
                open.insert(key, (moment.t_s, moment.what == What::Rescued));
            }
            What::Made | What::Lost => {
                let Some((since_s, is_rescue)) = open.remove(&key) else { continue };
                let is_lost = moment.what == What::Lost;
                let mut attributes = of_batch(moment);
                if is_rescue {
                    attributes.push(
                        json!({"key": "bothends.rescue", "value": {"boolValue": true}}),
                    );
                }
                let (from_ns, to_ns) = (at(since_s), at(moment.t_s));
                // A batch can be lost and claimed again by the same device.
                let key = format!("make {} {:?} {from_ns}", moment.batch, moment.device);
                spans.push(Span {
                    name: "make batch",
                    key,
                    from_ns,
                    to_ns,
                    attributes,
                    is_lost,
                });
            }
            What::Delivered => {
                spans.push(Span {
                    name: "deliver batch",
                    key: format!("deliver {}", moment.batch),
                    from_ns: at(delivered_s),
                    to_ns: at(moment.t_s),
                    attributes: of_batch(moment),
                    is_lost: false,
                });
                delivered_s = moment.t_s;
            }
        }
    }
    spans
}

fn of_batch(moment: &Moment) -> Vec<Value> {
    let by = moment.device.map_or("host".to_owned(), |device| format!("csd{device}"));
    vec![number("bothends.batch", moment.batch.into()), text("bothends.prong", &by)]
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn number(key: &str, value: u64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from float ends at the ends of the integer"
)]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// FNV-1a of 128 bits: ids need to differ, and nobody gains by making two equal.
fn hash(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::example;

    const BEGAN_NS: u64 = 1_700_000_000_000_000_000;

    fn spans(requests: &[String]) -> Vec<Value> {
        let of = |request: &String| -> Vec<Value> {
            let request: Value = serde_json::from_str(request).unwrap();
            let resource = &request["resourceSpans"][0];
            assert_eq!(resource["resource"]["attributes"][0]["key"], "service.name");
            resource["scopeSpans"][0]["spans"].as_array().unwrap().clone()
        };
        requests.iter().flat_map(of).collect()
    }

    fn ns(span: &Value, name: &str) -> u64 {
        span[name].as_str().unwrap().parse().unwrap()
    }

    #[test]
    fn every_batch_is_a_child_of_its_epoch_and_inside_it() {
        let recording = example::recording();
        let epoch = &recording.epochs[1];
        let spans = spans(&Spans::new("0.1.0", 3, "job-7").epoch(epoch, BEGAN_NS));
        let (root, children) = spans.split_first().unwrap();
        assert_eq!((&root["name"], root.get("parentSpanId")), (&json!("epoch"), None));
        assert_eq!(ns(root, "startTimeUnixNano"), BEGAN_NS);
        let mut ids = BTreeSet::from([root["spanId"].as_str().unwrap()]);
        for span in children {
            assert_eq!(span["parentSpanId"], root["spanId"]);
            assert_eq!(span["traceId"], root["traceId"]);
            assert_eq!(span["traceId"].as_str().unwrap().len(), 32);
            let id = span["spanId"].as_str().unwrap();
            assert!(id.len() == 16 && ids.insert(id), "{span}");
            let (from, to) = (ns(span, "startTimeUnixNano"), ns(span, "endTimeUnixNano"));
            assert!(BEGAN_NS <= from && from <= to, "{span}");
            assert!(to <= ns(root, "endTimeUnixNano"), "{span}");
        }
        let n = |name: &str| children.iter().filter(|span| span["name"] == name).count();
        assert_eq!((n("make batch"), n("deliver batch")), (40, 40));
        let is_rescue = |span: &&Value| span.to_string().contains("bothends.rescue");
        assert_eq!(children.iter().filter(is_rescue).count(), 1);
    }

    #[test]
    fn ranks_share_a_trace_and_no_span() {
        let recording = example::recording();
        let of = |rank, run| {
            spans(&Spans::new("0.1.0", rank, run).epoch(&recording.epochs[0], BEGAN_NS))
        };
        let (first, second, other) = (of(0, "a"), of(1, "a"), of(0, "b"));
        assert_eq!(first[0]["traceId"], second[0]["traceId"]);
        assert_ne!(first[0]["traceId"], other[0]["traceId"]);
        let ids: BTreeSet<String> = [&first, &second, &other]
            .into_iter()
            .flatten()
            .map(|s| s["spanId"].to_string())
            .collect();
        assert_eq!(ids.len(), first.len() + second.len() + other.len());
    }

    #[test]
    fn a_lost_batch_is_an_error_and_requests_are_bounded() {
        let at = |t_s, batch, what| Moment { t_s, batch, device: Some(1), what };
        let mut epoch = EpochRecord::new(0, "ordered", 600);
        for batch in 0..600 {
            let t_s = f64::from(batch);
            epoch.moments.push(at(t_s, batch, What::Claimed));
            epoch.moments.push(at(t_s + 0.5, batch, What::Lost));
        }
        let requests = Spans::new("0.1.0", 0, "").epoch(&epoch, BEGAN_NS);
        assert_eq!(requests.len(), 2);
        let spans = spans(&requests);
        assert_eq!(spans.len(), 601);
        assert_eq!(spans[1]["status"]["code"], ERROR);
        let by = json!({"key": "bothends.prong", "value": {"stringValue": "csd1"}});
        assert!(spans[1]["attributes"].as_array().unwrap().contains(&by));
    }
}
