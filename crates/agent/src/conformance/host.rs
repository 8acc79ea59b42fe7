//! Checks of what an honest host sees: sessions, samples, revoked jobs, records, statistics. They are
//! made through a `Transport`, and so hold for a device in this process, too.

use std::collections::BTreeMap;

use bothends_core::ids::SampleId;
use bothends_csd::{CsdError, Inquiry, JobId, PROTOCOL_VERSION, Session};
use bothends_slots::Outcome;

use super::exercise::{BEYOND, BROKEN, Kind, MAX_BATCH};
use super::fault::{Checked, broken, ensure, not_applicable};
use super::visit::{Visit, same, words};

pub(super) fn hello(visit: &mut Visit<'_>) -> Checked {
    let said = &visit.capabilities;
    ensure((said.protocol_version == PROTOCOL_VERSION).then_some(()), || {
        format!("its protocol_version is {}", said.protocol_version)
    })?;
    ensure((said.slots > 0).then_some(()), || "it has no slots".to_owned())?;
    ensure((said.max_batch_bytes > 0).then_some(()), || {
        "its max_batch_bytes is 0".to_owned()
    })?;
    let again = visit.device.hello()?;
    ensure((again == *said).then_some(()), || {
        "a second hello says something else".to_owned()
    })
}

pub(super) fn another_recipe(visit: &mut Visit<'_>) -> Checked {
    let session = visit.exercise.session();
    let recipe_hash = session.recipe_hash ^ 1;
    visit.refusal(&Session { recipe_hash, ..session }).map(drop)
}

pub(super) fn unreadable_recipe(visit: &mut Visit<'_>) -> Checked {
    visit.refusal(&Session { recipe: "{}".into(), ..visit.exercise.session() }).map(drop)
}

pub(super) fn unreadable_manifest(visit: &mut Visit<'_>) -> Checked {
    let session = visit.exercise.session();
    let n = session.manifest.len();
    for manifest in [vec![1, 2, 3], session.manifest[..n - 1].to_vec()] {
        visit.refusal(&Session { manifest, ..session.clone() })?;
    }
    Ok(())
}

pub(super) fn other_sample_bytes(visit: &mut Visit<'_>) -> Checked {
    visit.refusal(&Session { sample_bytes: 7, ..visit.exercise.session() }).map(drop)
}

pub(super) fn path_out_of_the_root(visit: &mut Visit<'_>) -> Checked {
    let session = visit.exercise.session();
    let Some(path) = visit.exercise.files().next().map(str::to_owned) else {
        return not_applicable("the exercise has no file");
    };
    let name = path.rsplit('/').next().unwrap_or(&path).as_bytes();
    let mut manifest = session.manifest.clone();
    let at = manifest.windows(name.len()).position(|window| window == name);
    let Some(at) = at else { return not_applicable("the manifest has no file") };
    manifest[at..at + 3].copy_from_slice(b"../");
    visit.refusal(&Session { manifest, ..session }).map(drop)
}

pub(super) fn absent_file(visit: &mut Visit<'_>) -> Checked {
    let absent = visit.exercise.absent();
    let reason = visit.refusal(&absent.session())?;
    let path = absent.files().next().unwrap_or_default().to_owned();
    let name = path.rsplit('/').next().unwrap_or(&path);
    ensure(reason.contains(name).then_some(()), || {
        format!("the refusal does not name `{name}`: {reason}")
    })
}

pub(super) fn after_a_refusal(visit: &mut Visit<'_>) -> Checked {
    visit.refusal(&Session { sample_bytes: 7, ..visit.exercise.session() })?;
    visit.open()?;
    visit.compare(visit.exercise.job(0, &[0]))
}

/// The jobs in which every record of a data set is made, some under several ids.
pub(super) fn samples(visit: &mut Visit<'_>) -> Checked {
    visit.open_if_it_can()?;
    let numbers: [&[u64]; 4] =
        [&[0, 1, 2, 3, 4], &[4, 4, 16, 0], &[3], &[8, 7, 6, 4, 3, 2, 1, 0, 1 << 40]];
    for (number, samples) in (0..).zip(numbers) {
        visit.compare(visit.exercise.job(number, samples))?;
    }
    Ok(())
}

pub(super) fn empty_job(visit: &mut Visit<'_>) -> Checked {
    visit.open()?;
    visit.compare(visit.exercise.job(1, &[]))
}

pub(super) fn largest_job(visit: &mut Visit<'_>) -> Checked {
    visit.open()?;
    let samples: Vec<u64> = (0..u64::from(MAX_BATCH)).map(|id| id % 3).collect();
    visit.compare(visit.exercise.job(1, &samples))
}

pub(super) fn bad_rows(visit: &mut Visit<'_>) -> Checked {
    visit.open()?;
    let mut job = visit.exercise.job(1, &[BROKEN, 0, BROKEN, 1]);
    if visit.exercise.kind() != Kind::Images {
        job.samples.push(SampleId(BEYOND));
    }
    visit.compare(job)
}

pub(super) fn nothing_readable(visit: &mut Visit<'_>) -> Checked {
    if visit.exercise.kind() == Kind::Images {
        return not_applicable("every file of the exercise is there");
    }
    visit.open()?;
    visit.failure(visit.exercise.job(1, &[BEYOND, BEYOND]))?;
    visit.compare(visit.exercise.job(2, &[0]))
}

pub(super) fn all_slots(visit: &mut Visit<'_>) -> Checked {
    visit.open()?;
    let mut expected = BTreeMap::new();
    let n_slots = visit.device.hello()?.slots.min(64);
    for number in 0..n_slots {
        let job = visit.exercise.job(number, &[u64::from(number), 1]);
        expected.insert(job.id, visit.exercise.expected(&job));
        visit.submit(job)?;
    }
    while !expected.is_empty() {
        let completion = visit.answer()?;
        let Some(expected) = expected.remove(&completion.job) else {
            return broken(format!(
                "it answers job {}, which does not exist",
                completion.job.0
            ));
        };
        let made = visit.made(completion, 2)?;
        same(&made, &expected, visit.exercise.sample_bytes())?;
    }
    Ok(())
}

pub(super) fn revoked(visit: &mut Visit<'_>) -> Checked {
    visit.open()?;
    let n_slots = visit.device.hello()?.slots.min(64);
    for number in 0..n_slots {
        visit.submit(visit.exercise.job(number, &[0, 1, 2, 4]))?;
    }
    let last = JobId(u64::from(n_slots - 1));
    visit.device.revoke(last)?;
    for _ in 0..n_slots {
        let completion = visit.answer()?;
        let is_answered = match completion.outcome {
            Outcome::Made { .. } => true,
            Outcome::Failed { .. } | Outcome::NotBegun => completion.job == last,
        };
        ensure(is_answered.then_some(()), || {
            format!("job {} fails: {}", completion.job.0, words(&completion.outcome))
        })?;
    }
    visit.compare(visit.exercise.job(100, &[1]))
}

pub(super) fn records(visit: &mut Visit<'_>) -> Checked {
    visit.open()?;
    let mut samples = vec![4, BROKEN, 0];
    if visit.exercise.kind() != Kind::Images {
        samples.insert(1, BEYOND);
    }
    for (seed, samples) in [(0xa0d1, samples.as_slice()), (7, &samples[..1]), (8, &[])] {
        let expected = visit.exercise.digests(samples, seed);
        let ids = samples.iter().copied().map(SampleId).collect();
        let said = visit.device.attest(&Inquiry { seed, samples: ids })?;
        ensure((said == Some(expected)).then_some(()), || {
            format!("with seed {seed} its digests of the records {samples:?} are others")
        })?;
    }
    Ok(())
}

pub(super) fn no_such_record(visit: &mut Visit<'_>) -> Checked {
    visit.open()?;
    let samples = vec![SampleId(0), SampleId(visit.exercise.n_records())];
    match visit.device.attest(&Inquiry { seed: 1, samples }) {
        Err(CsdError::SessionRefused { .. }) => {}
        Err(error) => return Err(error.into()),
        Ok(_) => {
            return broken("it has a digest of a sample that is not in the manifest");
        }
    }
    visit.compare(visit.exercise.job(1, &[0]))
}

pub(super) fn statistics(visit: &mut Visit<'_>) -> Checked {
    visit.open()?;
    let before = visit.device.stats()?;
    for number in 0..3 {
        visit.compare(visit.exercise.job(number, &[0, 1]))?;
    }
    let after = visit.device.stats()?;
    ensure((after.jobs >= before.jobs + 3).then_some(()), || {
        format!("it counts {} jobs before three, and {} after", before.jobs, after.jobs)
    })?;
    ensure((after.samples >= before.samples + 6).then_some(()), || {
        format!(
            "it counts {} samples before six, {} after",
            before.samples, after.samples
        )
    })?;
    ensure((after.queued == 0).then_some(()), || {
        format!("{} jobs are queued when all are answered", after.queued)
    })
}

pub(super) fn replaced_file(visit: &mut Visit<'_>) -> Checked {
    if visit.exercise.kind() == Kind::Images {
        return not_applicable("it serves files of images alone");
    }
    visit.open()?;
    visit.compare(visit.exercise.job(1, &[0]))?;
    let other = visit.exercise.replaced();
    let written = other.write();
    let seen = written.map_err(|error| broken::<()>(error.to_string())).map(|()| {
        let mut visit = visit.with(&other);
        visit.open()?;
        visit.compare(visit.exercise.job(2, &[0, 1, 2]))
    });
    let back = visit.exercise.write();
    back.or_else(|error| broken(error.to_string()))?;
    seen.unwrap_or_else(|error| error)
}

pub(super) fn without_its_files(visit: &mut Visit<'_>) -> Checked {
    visit.open()?;
    visit.compare(visit.exercise.job(1, &[0]))?;
    visit.exercise.starve().or_else(|error| broken(error.to_string()))?;
    visit.refusal(&visit.exercise.session()).map(drop)
}
