//! What around a run costs it something without being an error: a cache directory that cannot be written,
//! and a launcher whose ranks nobody passed on. Each is a sentence for a note, with a remedy.

use std::fs;
use std::path::Path;

use bothends_runtime::{DataSet, SideIndexUse, rates_folder};

/// Where launchers say which of how many processes this is: a rank, the number of ranks, and a variable
/// without which the two say nothing. A batch script of Slurm has the numbers of tasks that it may start.
const LAUNCHERS: [[&str; 3]; 4] = [
    ["RANK", "WORLD_SIZE", "RANK"],
    ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"],
    ["PMI_RANK", "PMI_SIZE", "PMI_RANK"],
];

/// Why what this run learns of its data is not kept, if it is not; then every epoch costs what the first one
/// does.
pub(crate) fn cache(side_index: SideIndexUse) -> Option<String> {
    if side_index != SideIndexUse::Auto {
        return None;
    }
    let Some(folder) = rates_folder(side_index) else {
        return Some(
            "there is no cache directory, so later epochs decode whole images; set XDG_CACHE_HOME to a folder \
             that can be written, or use --side-index off"
                .to_owned(),
        );
    };
    let folder = folder.parent().unwrap_or(&folder);
    let why = can_write(folder).err()?;
    Some(format!(
        "the cache directory {} cannot be written ({why}), so later epochs decode whole images; set \
         XDG_CACHE_HOME to a folder that can be, or use --side-index off",
        folder.display()
    ))
}

/// Makes the folder, and a file without a name in it.
fn can_write(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    tempfile::tempfile_in(folder).map(drop)
}

/// That a launcher started this process as one of several, and the run is told of one.
pub(crate) fn ranks(
    world: u32,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let number = |name| variable(name)?.trim().parse::<u32>().ok();
    let of = |[rank, n, needed]: [&'static str; 3]| {
        variable(needed)?;
        let (number_of, n_ranks) = (number(rank)?, number(n)?);
        (n_ranks > 1 && number_of < n_ranks).then_some((number_of, n_ranks, rank, n))
    };
    let (rank, n_ranks, told_rank, told_n) = LAUNCHERS.into_iter().find_map(of)?;
    (world == 1).then(|| {
        format!(
            "this is process {rank} of {n_ranks} ({told_rank}, {told_n}), and each of them runs the whole data \
             set; with --rank {rank} --world {n_ranks}, each has its part"
        )
    })
}

/// What this rank has listed: nobody else compares it with what the others have.
pub(crate) fn data_set(world: u32, listed: impl FnOnce() -> DataSet) -> Option<String> {
    (world > 1).then(|| {
        format!(
            "{}; it must be the same on all {world} ranks, or samples come twice and never",
            listed()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_were_not_passed_on_are_told_of() {
        let torchrun = |name: &str| match name {
            "RANK" => Some("3".to_owned()),
            "WORLD_SIZE" => Some("8".to_owned()),
            _ => None,
        };
        let note = ranks(1, torchrun).unwrap();
        assert!(note.starts_with("this is process 3 of 8 (RANK, WORLD_SIZE)"), "{note}");
        assert!(note.contains("--rank 3 --world 8"), "{note}");
        assert_eq!(ranks(8, torchrun), None, "they were");
        assert_eq!(ranks(1, |_| None), None, "no launcher");
        assert_eq!(ranks(1, |_| Some("1".to_owned())), None, "one of one");
        let script = |name: &str| torchrun(&name.replace("SLURM_PROCID", "RANK"));
        let tasks = |name: &str| torchrun(&name.replace("SLURM_NTASKS", "WORLD_SIZE"));
        let slurm = |name: &str| match name {
            "SLURM_PROCID" => script(name),
            "SLURM_NTASKS" => tasks(name),
            _ => None,
        };
        assert_eq!(ranks(1, slurm), None, "a batch script");
        let step = |name: &str| match name {
            "SLURM_STEP_ID" => Some("0".to_owned()),
            name => slurm(name),
        };
        assert!(ranks(1, step).unwrap().contains("(SLURM_PROCID, SLURM_NTASKS)"));
    }

    #[test]
    fn ranks_are_told_what_they_must_have_in_common() {
        let listed = || DataSet { samples: 23, table_hash: "0f".repeat(16) };
        let note = data_set(2, listed).unwrap();
        assert!(note.starts_with("23 samples, table hash 0f0f"), "{note}");
        assert!(note.contains("the same on all 2 ranks"), "{note}");
        assert_eq!(data_set(1, || unreachable!("nobody asks for it")), None);
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_found_out() {
        let folder = tempfile::tempdir().unwrap();
        can_write(&folder.path().join("new")).unwrap();
        let nothing = fs::read_dir(folder.path().join("new")).unwrap().count();
        assert_eq!(nothing, 0, "a file was left");
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        can_write(&file.join("new")).unwrap_err();
        assert_eq!(cache(SideIndexUse::Off), None);
    }
}
