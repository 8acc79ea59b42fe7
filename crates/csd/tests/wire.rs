//! The meaning of every byte on the wire, as (bytes, meaning) pairs, and what is no message.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use bothends_core::ids::{BatchIdx, EpochIdx, SampleId};
use bothends_csd::member::{Announcement, MemberList};
use bothends_csd::wire::{HEADER_BYTES, Header, MAX_JOB_SAMPLES, Message};
use bothends_csd::{
    Answer, Busy, Capabilities, CsdError, DeviceStats, Ending, EnergyReading, Inquiry,
    Job, JobId, JobTerms, RecordDigest, RunId, Session, SessionId,
};
use proptest::prelude::*;

const SESSION: SessionId = SessionId(0x1122_3344_5566_7788);

/// (bytes, meaning), the bytes written by `scripts/golden-wire` from the table in
/// `wire.rs`.
fn golden() -> Vec<(&'static str, Message)> {
    let mut all = golden_greetings();
    all.extend(golden_work());
    all.extend(golden_inquiry());
    all.extend(golden_words());
    all.extend(golden_sharing());
    all.extend(golden_members());
    all
}

fn golden_greetings() -> Vec<(&'static str, Message)> {
    vec![
        (
            "42454e440200000005000000000000000000000000000000000000000000000000000000\
         00000000c294d3380580062d000000000000000000000000000000000000000000000000\
         000000008172715a",
            Message::Hello,
        ),
        (
            "42454e440200000001000000200000000000000000000000000000000000000000000000\
         00000000054c6ee91f582335000000000000000000000000000000000000000000000000\
         00000000d0b859e3000102030405060708090a0b0c0d0e0f101112131415161718191a1b\
         1c1d1e1f",
            Message::Greet { nonce: std::array::from_fn(|at| u8::try_from(at).unwrap()) },
        ),
        (
            "42454e440200000002000000400000000000000000000000000000000000000000000000\
         00000000c666f9c7478ca43e000000000000000000000000000000000000000000000000\
         000000006eaee7ba01010101010101010101010101010101010101010101010101010101\
         010101010202020202020202020202020202020202020202020202020202020202020202",
            Message::Challenge { nonce: [1; 32], proof: Some([2; 32]) },
        ),
        (
            "42454e440200000003000000000000000000000000000000000000000000000000000000\
         00000000c294d3380580062d000000000000000000000000000000000000000000000000\
         00000000f442135b",
            Message::Prove { proof: None },
        ),
        (
            "42454e440200000004000000030000000000000000000000000000000000000000000000\
         000000002e0a410f3ddaa144000000000000000000000000000000000000000000000000\
         00000000a307efaf6ec3b6",
            Message::Refused { reason: "nö".into() },
        ),
    ]
}

fn golden_inquiry() -> Vec<(&'static str, Message)> {
    let record = RecordDigest::of(b"12345", 9);
    let inquiry = Inquiry {
        seed: 0x0123_4567_89ab_cdef,
        samples: [3, 1 << 40].map(SampleId).to_vec(),
    };
    let busy = Busy { retry: Duration::from_millis(1500), reason: "full".into() };
    vec![
        (
            "42454e440200000008000000000000008877665544332211000000000000000000000000\
         00000000c294d3380580062d000000000000000000000000000000000000000000000000\
         00000000b18a394c",
            Message::Opened(SESSION),
        ),
        (
            "42454e44020000000f000000040000000000000000000000000000000000000000000000\
         00000000f76a3d53a3b8811d0000000000000000002f6859000000000000000000000000\
         0000000034f48b9966756c6c",
            Message::Busy(busy),
        ),
        (
            "42454e440200000010000000100000008877665544332211000000000000000000000000\
         000000005e3c0fdf61257c6cefcdab896745230100000000000000000000000000000000\
         00000000fe9a9c9903000000000000000000000000010000",
            Message::Attest(SESSION, inquiry),
        ),
        (
            "42454e440200000011000000300000008877665544332211000000000000000000000000\
         00000000956bff2e00d9a69d000000000000000000000000000000000000000000000000\
         00000000b57c94d20500000000000000515129e613203d864931e3a6f3af2505ffffffff\
         ffffffff00000000000000000000000000000000",
            Message::Attested(SESSION, vec![Some(record), None]),
        ),
    ]
}

fn golden_work() -> Vec<(&'static str, Message)> {
    vec![
        (
            "42454e44020000000c000000000000008877665544332211080706050403020100000000\
         00000000c294d3380580062d000000000000000000000000000000000000000000000000\
         00000000e5eec82d",
            Message::Revoke(SESSION, JobId(0x0102_0304_0506_0708)),
        ),
        (
            "42454e440200000009000000180000008877665544332211070000000000000000000000\
         00000000ca41859edba303c4000000000000000003000000090000000000000000000000\
         0300000027d93ecb010000000000000000000000000100000500000000000000",
            Message::Job(
                SESSION,
                Job {
                    id: JobId(7),
                    epoch: EpochIdx(3),
                    batch: BatchIdx(9),
                    samples: [1, 1 << 40, 5].map(SampleId).to_vec(),
                    need_ns: 0,
                },
            ),
        ),
        (
            "42454e44020000000a0000000c0000008877665544332211070000000000000058020000\
             00000000f2889be80a3ca8cf0df0fecaefbeaddee8030000000000001400000000000000\
             0200000074cd317f010000000300000002000000",
            completed(
                7,
                [1000, 20],
                Ending::Done {
                    len: 600,
                    checksum: 0xdead_beef_cafe_f00d,
                    bad: vec![1, 3],
                    damaged: vec![2],
                },
            ),
        ),
        (
            "42454e44020000000b000000020000008877665544332211080000000000000000000000\
         00000000e8aa02b75afc089d000000000000000005000000000000000600000000000000\
         0000000025236acb6e6f",
            completed(8, [5, 6], Ending::Failed { reason: "no".into() }),
        ),
        (
            "42454e440200000007000000880000000000000000000000000000000000000000000000\
         0000000055fd10451a3cf7f3000000000000000000000000000000000000000000000000\
         00000000ebfadf547c0000007b22726563697065223a227b7d222c227265636970655f68\
         617368223a22303030303030303030303030303030303030303030303030303030303030\
         6666222c2273656564223a31383434363734343037333730393535313631352c2273616d\
         706c655f6279746573223a31322c226d61785f6261746368223a347d6d616e6966657374",
            Message::Open(Session {
                recipe: "{}".into(),
                recipe_hash: 0xff,
                seed: u64::MAX,
                sample_bytes: 12,
                max_batch: 4,
                manifest: b"manifest".to_vec(),
                job: None,
                run: None,
            }),
        ),
    ]
}

fn golden_sharing() -> Vec<(&'static str, Message)> {
    let session = Session {
        recipe: "{}".into(),
        recipe_hash: 0xff,
        seed: u64::MAX,
        sample_bytes: 12,
        max_batch: 4,
        manifest: b"manifest".to_vec(),
        job: Some(JobTerms { name: "resnet".into(), priority: -1, share: 3 }),
        run: None,
    };
    let of_a_run = Session { job: None, run: RunId::like("4711"), ..session.clone() };
    vec![
        (
            "42454e440200000009000000180000008877665544332211070000000000000000000000\
         00000000ca41859edba303c40000000000000000030000000900000080b2e60e00000000\
         03000000ce8900d9010000000000000000000000000100000500000000000000",
            Message::Job(
                SESSION,
                Job {
                    id: JobId(7),
                    epoch: EpochIdx(3),
                    batch: BatchIdx(9),
                    samples: [1, 1 << 40, 5].map(SampleId).to_vec(),
                    need_ns: 250_000_000,
                },
            ),
        ),
        (
            "42454e440200000007000000b80000000000000000000000000000000000000000000000\
         000000007ceed997e91e6414000000000000000000000000000000000000000000000000\
         000000002c583ce4ac0000007b22726563697065223a227b7d222c227265636970655f68\
         617368223a22303030303030303030303030303030303030303030303030303030303030\
         6666222c2273656564223a31383434363734343037333730393535313631352c2273616d\
         706c655f6279746573223a31322c226d61785f6261746368223a342c226a6f62223a7b22\
         6e616d65223a227265736e6574222c227072696f72697479223a2d312c22736861726522\
         3a337d7d6d616e6966657374",
            Message::Open(session),
        ),
        (
            "42454e440200000007000000950000000000000000000000000000000000000000000000\
             0000000053e1ec2f02eb9cc7000000000000000000000000000000000000000000000000\
             000000004ea6f4e5890000007b22726563697065223a227b7d222c227265636970655f68\
             617368223a22303030303030303030303030303030303030303030303030303030303030\
             6666222c2273656564223a31383434363734343037333730393535313631352c2273616d\
             706c655f6279746573223a31322c226d61785f6261746368223a342c2272756e223a2234\
             373131227d6d616e6966657374",
            Message::Open(of_a_run),
        ),
    ]
}

fn golden_members() -> Vec<(&'static str, Message)> {
    let told = Announcement {
        address: "tls://agent-7:7070".into(),
        lease: Duration::from_secs(6),
    };
    let list = MemberList {
        age: Duration::from_secs(90),
        text: "tls://agent-7:7070\ntls://agent-8:7070".into(),
    };
    vec![
        (
            "42454e440200000012000000000000000000000000000000000000000000000000000000\
             00000000c294d3380580062d000000000000000000000000000000000000000000000000\
             00000000f695854a",
            Message::Ping,
        ),
        (
            "42454e440200000013000000000000000000000000000000000000000000000000000000\
             00000000c294d3380580062d000000000000000000000000000000000000000000000000\
             00000000b30a39c6",
            Message::Pong,
        ),
        (
            "42454e440200000014000000120000000000000000000000000000000000000000000000\
             0000000051e93d4bb822d99e000000000000000000bca065010000000000000000000000\
             00000000efcde518746c733a2f2f6167656e742d373a37303730",
            Message::Announce(told),
        ),
        (
            "42454e440200000015000000000000000000000000000000000000000000000000000000\
             00000000c294d3380580062d000000000000000000000000000000000000000000000000\
             000000004a2f4927",
            Message::Announced,
        ),
        (
            "42454e440200000016000000000000000000000000000000000000000000000000000000\
             00000000c294d3380580062d000000000000000000000000000000000000000000000000\
             0000000055323f23",
            Message::AskMembers,
        ),
        (
            "42454e440200000017000000250000000000000000000000000000000000000000000000\
             000000007d728ee4e7e2cbab000000000000000000046bf4140000000000000000000000\
             00000000e64b6223746c733a2f2f6167656e742d373a373037300a746c733a2f2f616765\
             6e742d383a37303730",
            Message::Members(list),
        ),
    ]
}

fn golden_words() -> Vec<(&'static str, Message)> {
    let capabilities = Capabilities {
        protocol_version: 2,
        name: "a device".into(),
        emulated: false,
        ops: vec!["decode".into(), "random_crop".into()],
        slots: 2,
        max_batch_bytes: 1 << 20,
        features: Vec::new(),
    };
    let energy = EnergyReading {
        domain: "device".into(),
        energy_uj: 1_200_000,
        source: "measured(a meter)".into(),
    };
    let stats = DeviceStats {
        jobs: 3,
        samples: 24,
        cpu_seconds: Some(0.5),
        media_read_bytes: 73_728,
        busy_seconds: 0.25,
        energy: vec![energy],
        ..Default::default()
    };
    vec![
        (
            "42454e440200000002000000200000000000000000000000000000000000000000000000\
         00000000797e30be2798d9f6000000000000000000000000000000000000000000000000\
         00000000d006a14301010101010101010101010101010101010101010101010101010101\
         01010101",
            Message::Challenge { nonce: [1; 32], proof: None },
        ),
        (
            "42454e4402000000060000007c0000000000000000000000000000000000000000000000\
         000000008e3b320e97ba5c67000000000000000000000000000000000000000000000000\
         000000007185db937b2270726f746f636f6c5f76657273696f6e223a322c226e616d6522\
         3a226120646576696365222c22656d756c61746564223a66616c73652c226f7073223a5b\
         226465636f6465222c2272616e646f6d5f63726f70225d2c22736c6f7473223a322c226d\
         61785f62617463685f6279746573223a313034383537367d",
            Message::Welcome(capabilities),
        ),
        (
            "42454e44020000000d000000000000000000000000000000000000000000000000000000\
         00000000c294d3380580062d000000000000000000000000000000000000000000000000\
         00000000278265f4",
            Message::AskStats,
        ),
        (
            "42454e44020000000e000000e10000000000000000000000000000000000000000000000\
         000000007ae196d80c47dc89000000000000000000000000000000000000000000000000\
         00000000bd0d86097b226a6f6273223a332c2273616d706c6573223a32342c2271756575\
         6564223a302c226370755f7365636f6e6473223a302e352c226d656469615f726561645f\
         6279746573223a37333732382c22627573795f7365636f6e6473223a302e32352c226c61\
         74655f636f6d706c6574696f6e73223a302c226d61785f6c6174656e6573735f7365636f\
         6e6473223a302e302c22656e65726779223a5b7b22646f6d61696e223a22646576696365\
         222c22656e657267795f756a223a313230303030302c22736f75726365223a226d656173\
         757265642861206d6574657229227d5d7d",
            Message::Stats(stats),
        ),
    ]
}

/// What `docs/wire.md` shows of messages is what they are, and it shows all of them.
#[test]
fn the_page_shows_every_message() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks = page.split("<!-- golden ").skip(1).map(|part| {
        let block = part.split("```").nth(1).unwrap().strip_prefix("text\n").unwrap();
        let digits = |line: &str| line.split_whitespace().skip(1).collect::<String>();
        block.lines().map(digits).collect()
    });
    let shown: Vec<String> =
        blocks.filter(|hex: &String| hex.starts_with("42454e44")).collect();
    let golden: Vec<String> =
        golden().iter().map(|(hex, _)| to_hex(&from_hex(hex))).collect();
    assert!(golden.iter().all(|hex| shown.contains(hex)), "run scripts/golden-wire");
    assert!(shown.iter().all(|hex| golden.contains(hex)), "run scripts/golden-wire");
}

#[test]
fn every_kind_of_message_has_its_golden_bytes() {
    for (hex, meaning) in golden() {
        let bytes = from_hex(hex);
        assert_eq!(decode(&bytes).unwrap(), meaning);
        assert_eq!(to_hex(&meaning.encode()), to_hex(&bytes), "{meaning:?}");
    }
}

#[test]
fn json_bodies_come_back() {
    let capabilities = serde_json::from_str(
        r#"{"protocol_version": 2, "name": "x", "emulated": true, "ops": [],
            "slots": 2, "max_batch_bytes": 600}"#,
    );
    let stats = DeviceStats { jobs: 3, cpu_seconds: Some(0.1), ..Default::default() };
    for message in [Message::Welcome(capabilities.unwrap()), Message::Stats(stats)] {
        assert_eq!(decode(&message.encode()).unwrap(), message);
    }
}

#[test]
fn a_reason_is_cut_to_fit_in_whole_characters() {
    let long = Message::Refused { reason: "a".to_owned() + &"é".repeat(5000) };
    let Message::Refused { reason } = decode(&long.encode()).unwrap() else { panic!() };
    assert_eq!(reason.len(), 4095);
}

#[test]
fn every_bad_file_is_an_error() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/bad/wire");
    let mut n_files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let decoded = decode(&std::fs::read(&path).unwrap());
        let is_version = path.to_string_lossy().contains("version");
        match decoded {
            Err(CsdError::Version { .. }) => assert!(is_version, "{}", path.display()),
            Err(CsdError::Malformed { .. }) => assert!(!is_version, "{}", path.display()),
            other => panic!("{}: {other:?}", path.display()),
        }
        n_files += 1;
    }
    assert!(n_files > 30, "only {n_files} bad files");
}

#[test]
fn a_changed_bit_of_a_header_is_an_error() {
    for (hex, _) in golden() {
        let bytes = from_hex(hex);
        for bit in 0..8 * HEADER_BYTES {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&changed).is_err(), "bit {bit} of {hex}");
        }
    }
}

#[test]
fn a_message_cut_short_is_an_error() {
    for (hex, _) in golden() {
        let bytes = from_hex(hex);
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len} bytes of {hex}");
        }
    }
}

proptest! {
    #[test]
    fn jobs_come_back(
        (id, epoch, batch, need_ns) in any::<(u64, u32, u32, u64)>(),
        samples in proptest::collection::vec(any::<u64>(), 0..300),
    ) {
        let samples = samples.into_iter().map(SampleId).collect();
        let (id, epoch, batch) = (JobId(id), EpochIdx(epoch), BatchIdx(batch));
        let job = Job { id, epoch, batch, samples, need_ns };
        let message = Message::Job(SESSION, job);
        prop_assert_eq!(decode(&message.encode()).unwrap(), message);
    }

    #[test]
    fn completions_come_back(
        (job, device_ns, lateness_ns) in any::<(u64, u64, u64)>(),
        (len, checksum) in any::<(u64, u64)>(),
        rows in proptest::collection::btree_map(0..MAX_JOB_SAMPLES, any::<bool>(), 0..50),
    ) {
        let of = |is_bad| rows.iter().filter(move |row| *row.1 == is_bad).map(|row| *row.0);
        let (bad, damaged) = (of(true).collect(), of(false).collect());
        let ending = Ending::Done { len, checksum, bad, damaged };
        let message = completed(job, [device_ns, lateness_ns], ending);
        prop_assert_eq!(decode(&message.encode()).unwrap(), message);
    }

    #[test]
    fn sessions_come_back(
        recipe in ".*",
        (hash, seed) in any::<(u128, u64)>(),
        (sample_bytes, max_batch) in any::<(u32, u32)>(),
        manifest in proptest::collection::vec(any::<u8>(), 0..300),
        job in proptest::option::of(("[A-Za-z0-9._-]{1,64}", -4_i8..=4, 1_u8..=100)),
        run in proptest::option::of("[A-Za-z0-9._:-]{1,64}"),
    ) {
        let run = run.and_then(|run| RunId::like(&run));
        let recipe_hash = hash;
        let job = job.map(|(name, priority, share)| JobTerms { name, priority, share });
        let session =
            Session { recipe, recipe_hash, seed, sample_bytes, max_batch, manifest, job, run };
        let message = Message::Open(session);
        prop_assert_eq!(decode(&message.encode()).unwrap(), message);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        drop(decode(&bytes));
    }

    #[test]
    fn a_changed_body_never_panics(which in 0..golden().len(), at in any::<usize>(), byte: u8) {
        let mut bytes = from_hex(golden()[which].0);
        let at = at % bytes.len();
        bytes[at] = byte;
        drop(decode(&bytes));
    }
}

/// The one message in `bytes`, as a link reads it.
fn decode(bytes: &[u8]) -> Result<Message, CsdError> {
    let short = CsdError::Malformed { what: "short" };
    let Some((header, body)) = bytes.split_first_chunk() else { return Err(short) };
    let header = Header::decode(header)?;
    Message::decode(&header, body)
}

fn completed(job: u64, [device_ns, lateness_ns]: [u64; 2], ending: Ending) -> Message {
    let answer = Answer { job: JobId(job), ending, device_ns, lateness_ns };
    Message::Completed(SESSION, answer)
}

fn from_hex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2).map(|pair| str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
