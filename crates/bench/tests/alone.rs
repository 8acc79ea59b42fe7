//! Every op is measured, and the answers of the peers are reported unchanged. No test depends on how long
//! anything took.
#![allow(clippy::unwrap_used, reason = "helpers of tests; a panic is the report")]

use std::fs;
use std::time::Duration;

use bothends_bench::BenchError;
use bothends_bench::alone::{AloneBench, AloneResult, Peer, PeersCommand, names};
use bothends_bench::ops::Level;
use bothends_samples::GenerateConfig;
use tempfile::TempDir;

fn bench() -> AloneBench {
    let folder = tempfile::tempdir().unwrap();
    let config = GenerateConfig { n_images: 1, n_classes: 1, seed: 1 };
    bothends_samples::generate(folder.path(), &config, &mut |_, _| {}).unwrap();
    AloneBench {
        image: fs::read(folder.path().join("class-000/000.jpg")).unwrap(),
        only: Vec::new(),
        kernels: vec![Level::best()],
        rounds: 1,
        at_least: Duration::from_millis(1),
        peers: None,
    }
}

/// A program of the shell, which reads both images first.
fn program(folder: &TempDir, then: &str) -> Option<PeersCommand> {
    let script = folder.path().join("peers.sh");
    let text = format!(
        "echo peers; for _ in source sample; do
            read -r _ _ height width; head -c $((height * width * 3)) >/dev/null
            echo $height by $width
        done
        {then}"
    );
    fs::write(&script, text).unwrap();
    Some(PeersCommand { python: "/bin/sh".into(), script })
}

fn mean(result: &AloneResult, op: &str) -> f64 {
    let found = result.ops.iter().find(|found| found.op == op).unwrap();
    found.ours[0].mean_value.unwrap()
}

#[test]
fn every_op_is_measured_and_does_what_it_is_called() {
    let kernels = vec![Level::best(), Level::Scalar];
    let result = AloneBench { kernels, ..bench() }.run(&mut |_| {}).unwrap();
    assert_eq!(result.levels, [Level::best().name(), "scalar"]);
    for name in names() {
        assert!(result.ops.iter().any(|op| op.op == name), "{name}");
    }
    for op in &result.ops {
        assert!(op.ours.iter().all(|ours| ours.us > 0.0), "{op:?}");
        let means: Vec<_> = op.ours.iter().map(|ours| ours.mean_value).collect();
        assert_eq!(means[0], means[1], "{op:?}: the levels differ");
        assert!(op.peers.is_empty() && op.best_peer_by_ours.is_none(), "{op:?}");
    }
    let plain = mean(&result, "vertical_flip");
    assert!((mean(&result, "invert") - (255.0 - plain)).abs() < 1e-9);
    assert!(mean(&result, "adjust_brightness") > plain);
    assert!(mean(&result, "erase") < plain);
    assert!(result.table().contains("--peers"), "nothing says how to get peers");
}

#[test]
fn peers_are_shown_and_the_best_of_them_counts() {
    let folder = tempfile::tempdir().unwrap();
    // The two are far apart, as our own time may differ a hundredfold between rounds on a busy machine.
    let answers = "while read -r _ peer _ op _; do
        case $op-$peer in
            *-tensor) echo 9000000000000 77.5;;
            invert-pillow) echo 8000000;;
            *-pillow) echo 0.000001;;
            *) echo -;;
        esac
    done";
    let bench = AloneBench {
        only: vec!["invert".into(), "vertical_flip".into()],
        rounds: 2,
        peers: program(&folder, answers),
        ..bench()
    };
    let result = bench.run(&mut |_| {}).unwrap();
    assert_eq!(result.peers.as_deref(), Some("224 by 224"));
    let [flip, invert] = ["vertical_flip", "invert"]
        .map(|name| result.ops.iter().find(|op| op.op == name).unwrap());
    assert_eq!(invert.peers[0].1.mean_value, Some(77.5));
    let us = |nth: usize| (invert.peers[nth].0, invert.peers[nth].1.us);
    assert_eq!([us(0), us(1)], [(Peer::Tensor, 9e12), (Peer::Pillow, 8e6)]);
    assert_eq!(invert.peers.len(), 2, "{invert:?}");
    let ratio = invert.best_peer_by_ours.unwrap();
    assert!(
        ratio > 1.0 && ratio < 9e12 / invert.ours[0].us,
        "{ratio} is of the slower one"
    );
    assert!(flip.best_peer_by_ours.unwrap() < 1.0);
    assert_eq!((result.n_compared, result.n_ahead), (2, 1));
    assert!(result.table().contains("ahead in 1 of 2 ops"), "{}", result.table());
}

#[test]
fn a_program_that_fails_is_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let failure = |then: &str| {
        let peers = program(&folder, then);
        let only = vec!["invert".to_owned()];
        AloneBench { only, peers, ..bench() }.run(&mut |_| {}).unwrap_err().to_string()
    };
    assert!(
        failure("exit 3").contains("ended when asked `measure "),
        "{}",
        failure("exit 3")
    );
    let said = failure("while read -r _; do echo error no such thing; done");
    assert!(said.ends_with("says: no such thing"), "{said}");
    let said = failure("while read -r _; do echo what; done");
    assert!(said.ends_with("says: what"), "{said}");
    let script = folder.path().join("peers.sh");
    fs::write(&script, "echo peers; read -r _; echo error install it").unwrap();
    let peers = Some(PeersCommand { python: "/bin/sh".into(), script });
    let said = AloneBench { peers, ..bench() }.run(&mut |_| {}).unwrap_err().to_string();
    assert_eq!(said, "the peers' program, asked `image source`, says: install it");
    let peers = PeersCommand { python: "/no/such/python".into(), script: "x".into() };
    let started = AloneBench { peers: Some(peers), ..bench() }.run(&mut |_| {});
    assert!(matches!(started, Err(BenchError::PeersStart { .. })), "{started:?}");
}

#[test]
fn ops_go_by_the_names_that_recipes_have_for_them() {
    let only = vec!["random_horizontal_flip".to_owned(), "random_erasing".to_owned()];
    let result = AloneBench { only, ..bench() }.run(&mut |_| {}).unwrap();
    let ops: Vec<_> = result.ops.iter().map(|op| op.op).collect();
    assert_eq!(ops, ["horizontal_flip", "erase", "random_erasing"]);
}

#[test]
fn a_name_that_no_op_has_is_answered_with_those_there_are() {
    let only = vec!["sharpen".to_owned()];
    let error = AloneBench { only, ..bench() }.run(&mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("`sharpen`") && error.contains("adjust_sharpness"), "{error}");
}
