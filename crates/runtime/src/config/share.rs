//! What of a machine one process takes when it is left to choose: its part of the processors and
//! of the memory, besides the other ranks that train there.
//!
//! Pure: `threads/limits.rs` asks the kernel, `threads/registration.rs` counts processes where no
//! launcher does, and the bindings and programs pass on what launchers' variables say. Numbers that the user
//! gives are never divided.

/// Where launchers say how many of their processes run on one machine.
const VARIABLES: [(&str, Launcher); 7] = [
    ("LOCAL_WORLD_SIZE", Launcher::Torchrun),
    ("SLURM_STEP_TASKS_PER_NODE", Launcher::Slurm),
    ("SLURM_NTASKS_PER_NODE", Launcher::Slurm),
    ("SLURM_TASKS_PER_NODE", Launcher::Slurm),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", Launcher::Mpi),
    ("MPI_LOCALNRANKS", Launcher::Mpi),
    ("MV2_COMM_WORLD_LOCAL_SIZE", Launcher::Mpi),
];

/// DeepSpeed's launcher, and only where its own second variable is set, too: the name is
/// anybody's.
const DEEPSPEED: [&str; 2] = ["LOCAL_SIZE", "CROSS_SIZE"];

/// Where launchers say which of one machine's processes this is.
const LOCAL_RANKS: [&str; 5] = [
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
];

/// What is said of ranks that were counted.
const COUNTED: &str = "processes that registered";

/// Most ranks that a machine is believed to have.
const MOST_RANKS: u32 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Launcher {
    Torchrun,
    Slurm,
    Mpi,
}

/// This process among those of its launcher on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    n: u32,
    told_by: Option<(&'static str, Launcher)>,
    /// The number of this one's GPU.
    gpu: u32,
}

impl Ranks {
    /// Nobody else.
    pub const ALONE: Self = Self { n: 1, told_by: None, gpu: 0 };

    /// As a launcher's environment variables say: `LOCAL_WORLD_SIZE` (torchrun, Accelerate, Ray
    /// Train), Slurm's, Open MPI's, MPICH's, DeepSpeed's; or `WORLD_SIZE`, where the rendezvous is at
    /// an address that only this machine can reach, as Lightning's launcher sets it on one node.
    /// `variable` gives the value of one. What cannot be read counts as not said.
    #[must_use]
    pub fn told_by(variable: impl Fn(&str) -> Option<String>) -> Self {
        // A batch script of Slurm is one process, and has the numbers of the tasks it may start.
        let in_step = variable("SLURM_STEP_ID").is_some();
        let node = variable("SLURM_NODEID").and_then(|node| node.trim().parse().ok());
        let said = VARIABLES.iter().find_map(|&(name, launcher)| {
            let value = variable(name).filter(|_| launcher != Launcher::Slurm || in_step);
            let n = nth_of(value?.trim(), node.unwrap_or(0))?;
            let told_by = Some((name, launcher));
            (1..=MOST_RANKS).contains(&n).then_some(Self { n, told_by, gpu: 0 })
        });
        let number = |name: &'static str| {
            let n = variable(name)?.trim().parse().ok()?;
            let told_by = Some((name, Launcher::Torchrun));
            (1..=MOST_RANKS).contains(&n).then_some(Self { n, told_by, gpu: 0 })
        };
        let [deepspeed, beside_it] = DEEPSPEED;
        let is_rank = variable("RANK").or_else(|| variable("LOCAL_RANK")).is_some();
        let is_one_machine = variable("MASTER_ADDR").is_some_and(|at| is_loopback(&at));
        let said = said
            .or_else(|| variable(beside_it).and_then(|_| number(deepspeed)))
            .or_else(|| number("WORLD_SIZE").filter(|_| is_rank && is_one_machine))
            .unwrap_or(Self::ALONE);
        Self { gpu: own_gpu(variable), ..said }
    }

    /// So many as have registered ([`Self::here`]).
    pub(crate) fn counted(n: u32) -> Self {
        let told_by = Some((COUNTED, Launcher::Torchrun));
        Self { n: n.clamp(1, MOST_RANKS), told_by, gpu: 0 }
    }

    /// The same with the GPU of what was told otherwise.
    pub(crate) fn with_gpu_of(self, told: Self) -> Self {
        Self { gpu: told.gpu, ..self }
    }

    /// The number of this process's GPU, of those that it sees: its own among the ranks of its machine,
    /// as launchers' variables say (`LOCAL_RANK`, Slurm's, Open MPI's, MPICH's); 0 where they say nothing.
    #[must_use]
    pub fn gpu(self) -> u32 {
        self.gpu
    }

    /// Whether somebody stated it.
    pub(crate) fn are_told(self) -> bool {
        self.told_by.is_some()
    }

    /// How many there are, this one included.
    #[must_use]
    pub fn n(self) -> u32 {
        self.n
    }

    /// Of an amount that all of them use, one's part.
    #[must_use]
    pub fn part_of(self, whole: u64) -> u64 {
        whole / u64::from(self.n.max(1))
    }
}

/// The number that this process has among the ranks of its machine, of the GPUs that it is shown: a
/// launcher that shows each rank its own alone has all of them count from 0.
fn own_gpu(variable: impl Fn(&str) -> Option<String>) -> u32 {
    let number = |name: &&str| variable(name)?.trim().parse::<u32>().ok();
    let local_rank = LOCAL_RANKS.iter().find_map(number).unwrap_or(0);
    let shown = variable("CUDA_VISIBLE_DEVICES").filter(|list| !list.trim().is_empty());
    let n_shown = shown.and_then(|list| u32::try_from(list.split(',').count()).ok());
    local_rank % n_shown.unwrap_or(u32::MAX)
}

/// Whether only this machine can reach an address.
fn is_loopback(address: &str) -> bool {
    matches!(address.trim(), "localhost" | "::1") || address.trim().starts_with("127.")
}

/// Processes of one user on one machine that belong to one job, where no launcher counts them.
///
/// Those with the same rendezvous do: they are about to form one process group. Where there is none
/// in the environment (`init_method="tcp://…"`), those that one parent has started as workers of a
/// job (`torch.multiprocessing.spawn`); only the caller can know that it is one. A session, or a
/// parent alone, would not do: two jobs that are started from one shell have both in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group(String);

impl Group {
    /// The group that this process is in.
    pub(crate) fn of(
        variable: impl Fn(&str) -> Option<String>,
        parent: Option<u32>,
    ) -> Option<Self> {
        let rendezvous = variable("MASTER_ADDR").zip(variable("MASTER_PORT"));
        let rendezvous = rendezvous
            .map(|(address, port)| format!("at {}:{}", address.trim(), port.trim()));
        rendezvous.or_else(|| parent.map(|parent| format!("of {parent}"))).map(Self)
    }

    /// Different for different groups.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

/// The number for node `node` in what Slurm writes: `8(x2),4` is 8, 8, 4. The last one counts for
/// nodes that are not listed.
fn nth_of(list: &str, node: usize) -> Option<u32> {
    let mut before = 0;
    let mut last = None;
    for part in list.split(',') {
        let (number, times) = match part.split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1_usize),
        };
        last = Some(number.trim().parse().ok()?);
        before += times.min(1 << 20);
        if node < before {
            break;
        }
    }
    last
}

/// Processors, as the kernel gives them to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Processors {
    /// Those that it may run on.
    pub(crate) allowed: u32,
    /// Those of the machine, or of the container it runs in.
    pub(crate) machine: u32,
    /// How much of them its control group may use at once, in thousandths.
    pub(crate) quota_milli: Option<u64>,
    /// Whether who started it may run on more.
    pub(crate) is_bound: bool,
}

/// What of a machine this process takes when it is left to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub(crate) ranks: Ranks,
    pub(crate) processors: Processors,
}

impl Share {
    /// Worker threads: one for each processor that is this process's own, and one at least.
    #[must_use]
    pub fn workers(&self) -> u32 {
        let Self { ranks, processors } = self;
        let own = match self.has_own_processors() {
            true => processors.allowed,
            false => processors.allowed / ranks.n,
        };
        // A control group holds all ranks of a machine.
        let quota = processors.quota_milli.map(|milli| ranks.part_of(milli / 1000));
        let quota = quota.map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX));
        own.min(quota).max(1)
    }

    /// Of the CPUs that this process may keep busy, those that are not other ranks': what none of
    /// them is bound to is divided.
    pub(crate) fn own_processors(&self, usable: u32) -> f64 {
        let Self { ranks, processors } = self;
        let (usable, n) = (f64::from(usable), f64::from(ranks.n.max(1)));
        let own = if self.has_own_processors() { usable } else { usable / n };
        // A control group holds all ranks of a machine.
        #[expect(
            clippy::cast_precision_loss,
            reason = "2^53 are more than any machine has"
        )]
        let quota = processors.quota_milli.map(|milli| milli as f64 / 1000.0 / n);
        own.min(quota.unwrap_or(f64::INFINITY))
    }

    /// The ranks on this machine, this process included; of `world` in all, `None` where nobody says
    /// how many of them are here.
    pub(crate) fn ranks_here(&self, world: u32) -> Option<u32> {
        (world <= 1 || self.ranks.are_told()).then_some(self.ranks.n)
    }

    /// Whether the launcher has given each rank processors of its own: then they are divided
    /// already. Slurm and MPI do so; torchrun's ranks inherit what it has, unless somebody bound
    /// them one by one.
    fn has_own_processors(&self) -> bool {
        let Self { ranks, processors } = self;
        let may_be = match ranks.told_by {
            None => true,
            Some((_, Launcher::Torchrun)) => processors.is_bound,
            Some((_, Launcher::Slurm | Launcher::Mpi)) => true,
        };
        may_be && processors.allowed.saturating_mul(ranks.n) <= processors.machine
    }

    /// Why that is fewer than the machine has, in one line, if it is; for a run of so many
    /// workers, nothing where they were not chosen so.
    #[must_use]
    pub fn why(&self, workers: u32) -> Option<String> {
        let Self { ranks, processors } = self;
        let Processors { machine, allowed, quota_milli, .. } = *processors;
        if workers >= machine || workers != self.workers() {
            return None;
        }
        let mut why = Vec::new();
        if let Some((name, _)) = ranks.told_by.filter(|_| ranks.n > 1) {
            why.push(format!("{} ranks share this machine ({name})", ranks.n));
        }
        if allowed < machine {
            why.push(format!("this process may run on {allowed}"));
        }
        if let Some(milli) =
            quota_milli.filter(|milli| *milli < 1000 * u64::from(machine))
        {
            let (whole, tenth) = (milli / 1000, milli % 1000 / 100);
            why.push(format!("its control group may use {whole}.{tenth}"));
        }
        let noun = if workers == 1 { "worker" } else { "workers" };
        (!why.is_empty()).then(|| {
            format!("{workers} {noun} on {machine} processors: {}", why.join(", "))
        })
    }
}

/// What `cpu.max` of a control group (version 2) allows, in thousandths of a processor.
pub(crate) fn quota_milli(cpu_max: &str) -> Option<u64> {
    let (quota, period) = cpu_max.trim().split_once(' ')?;
    // "max" is none.
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    quota.checked_mul(1000)?.checked_div(period)
}

/// How many processors a list of the kernel's names: `0-3,8` are five.
pub(crate) fn n_listed(list: &str) -> Option<u32> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) =
            (first.trim().parse().ok()?, last.trim().parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.trim().split(',').map(count).try_fold(0_u32, |sum, n| sum.checked_add(n?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(variables: &[(&str, &str)]) -> Ranks {
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Ranks::told_by(value)
    }

    fn torchrun(n: u32) -> Ranks {
        ranks(&[("LOCAL_WORLD_SIZE", &n.to_string())])
    }

    fn whole(n: u32) -> Processors {
        Processors { allowed: n, machine: n, quota_milli: None, is_bound: false }
    }

    #[test]
    fn ranks_divide_a_machine_and_every_one_has_a_worker() {
        for (machine, n_ranks, workers) in [
            (16, 1, 16),
            (16, 2, 8),
            (16, 8, 2),
            (64, 1, 64),
            (64, 2, 32),
            (64, 8, 8),
            (128, 1, 128),
            (128, 2, 64),
            (128, 8, 16),
            (16, 3, 5),
            (2, 8, 1),
        ] {
            let share = Share { ranks: torchrun(n_ranks), processors: whole(machine) };
            assert_eq!(share.workers(), workers, "{machine} by {n_ranks}");
            assert!(workers == 1 || workers * n_ranks <= machine);
            let why = share.why(workers);
            assert_eq!(why.is_some(), n_ranks > 1, "{why:?}");
        }
    }

    #[test]
    fn the_processors_of_all_ranks_are_those_of_the_machine() {
        for (n_ranks, usable) in [(1, 16), (3, 16), (8, 16), (8, 2)] {
            let share = Share { ranks: torchrun(n_ranks), processors: whole(usable) };
            let all = f64::from(n_ranks) * share.own_processors(usable);
            assert!((all - f64::from(usable)).abs() < 1e-9, "{all} of {usable}");
        }
        // Bound to its own four of thirty-two; and all eight ranks may use eight together.
        let bound = Processors { allowed: 4, is_bound: true, ..whole(32) };
        let quota_milli = Some(8000);
        for (processors, own) in
            [(bound, 4.0), (Processors { quota_milli, ..bound }, 1.0)]
        {
            let share = Share { ranks: torchrun(8), processors };
            assert!((share.own_processors(4) - own).abs() < 1e-9, "{own}");
        }
        let alone = Share { ranks: Ranks::ALONE, processors: whole(4) };
        assert_eq!((alone.ranks_here(1), alone.ranks_here(8)), (Some(1), None));
        let told = Share { ranks: torchrun(4), ..alone };
        assert_eq!((told.ranks_here(8), told.ranks_here(1)), (Some(4), Some(4)));
    }

    #[test]
    fn a_quota_is_shared_by_all_and_says_so() {
        let processors = Processors { quota_milli: Some(2500), ..whole(64) };
        for (n_ranks, workers) in [(1, 2), (2, 1), (8, 1)] {
            let share = Share { ranks: torchrun(n_ranks), processors };
            assert_eq!(share.workers(), workers);
        }
        let share = Share { ranks: Ranks::ALONE, processors };
        let why = "2 workers on 64 processors: its control group may use 2.5";
        assert_eq!(share.why(2).as_deref(), Some(why));
        assert_eq!(share.why(7), None, "seven were asked for");
        let wide = Processors { quota_milli: Some(64_000), ..whole(64) };
        assert_eq!(Share { ranks: torchrun(8), processors: wide }.workers(), 8);
        // Bound to four processors each, and all of them may use eight.
        let ranks = ranks(&[("OMPI_COMM_WORLD_LOCAL_SIZE", "8")]);
        let bound = Processors { allowed: 4, quota_milli: Some(8000), ..whole(32) };
        assert_eq!(Share { ranks, processors: bound }.workers(), 1);
    }

    #[test]
    fn a_mask_is_divided_unless_each_rank_has_one_of_its_own() {
        let masked = Processors { allowed: 16, ..whole(128) };
        assert_eq!(Share { ranks: Ranks::ALONE, processors: masked }.workers(), 16);
        // `taskset torchrun`: all of them run on the same sixteen.
        assert_eq!(Share { ranks: torchrun(8), processors: masked }.workers(), 2);
        let bound = Processors { is_bound: true, ..masked };
        assert_eq!(Share { ranks: torchrun(8), processors: bound }.workers(), 16);
        let in_step = ("SLURM_STEP_ID", "0");
        let slurm = ranks(&[in_step, ("SLURM_NTASKS_PER_NODE", "8")]);
        assert_eq!(Share { ranks: slurm, processors: masked }.workers(), 16);
        // Sixteen of sixteen are no rank's own.
        assert_eq!(Share { ranks: slurm, processors: whole(16) }.workers(), 2);
        let why = Share { ranks: torchrun(8), processors: masked }.why(2).unwrap();
        assert_eq!(
            why,
            "2 workers on 128 processors: 8 ranks share this machine (LOCAL_WORLD_SIZE), \
             this process may run on 16"
        );
    }

    #[test]
    fn launchers_say_how_many_run_on_a_machine() {
        let n = |variables: &[(&str, &str)]| ranks(variables).n();
        assert_eq!(n(&[]), 1);
        assert_eq!(n(&[("WORLD_SIZE", "16")]), 1, "of all machines together");
        assert_eq!(n(&[("OMPI_COMM_WORLD_LOCAL_SIZE", "4")]), 4);
        assert_eq!(n(&[("MPI_LOCALNRANKS", "6")]), 6);
        for nonsense in ["", "x", "0", "-1", "99999", "8(x", "8(y2)"] {
            assert_eq!(n(&[("LOCAL_WORLD_SIZE", nonsense)]), 1, "{nonsense}");
        }
        let slurm = |list, node| {
            n(&[
                ("SLURM_STEP_ID", "0"),
                ("SLURM_NODEID", node),
                ("SLURM_STEP_TASKS_PER_NODE", list),
            ])
        };
        assert_eq!((slurm("8", "0"), slurm("8(x2),4", "1")), (8, 8));
        assert_eq!((slurm("8(x2),4", "2"), slurm("2,4(x3)", "0")), (4, 2));
        // A batch script is none of the tasks that it may start.
        assert_eq!(n(&[("SLURM_NTASKS_PER_NODE", "8")]), 1);
        let both = [
            ("SLURM_STEP_ID", "0"),
            ("SLURM_NTASKS_PER_NODE", "1"),
            ("LOCAL_WORLD_SIZE", "8"),
        ];
        assert_eq!(n(&both), 8, "srun started torchrun");
    }

    #[test]
    fn launchers_that_say_it_otherwise_are_understood() {
        let n = |variables: &[(&str, &str)]| ranks(variables).n();
        let lightning = [
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", "41231"),
            ("NODE_RANK", "0"),
            ("LOCAL_RANK", "3"),
            ("WORLD_SIZE", "8"),
        ];
        assert_eq!(n(&lightning), 8);
        // Several nodes meet at an address that all of them reach: of how many each has, this says
        // nothing.
        let nodes = [("MASTER_ADDR", "10.0.0.1"), lightning[3], lightning[4]];
        assert_eq!(n(&nodes), 1);
        assert_eq!(n(&[lightning[0], lightning[4]]), 1, "no rank of it");
        let deepspeed = [("LOCAL_SIZE", "4"), ("CROSS_SIZE", "2"), ("WORLD_SIZE", "8")];
        assert_eq!(n(&deepspeed), 4);
        assert_eq!(n(&deepspeed[..1]), 1, "anybody's variable");
        let both = [("LOCAL_WORLD_SIZE", "2"), lightning[0], lightning[3], lightning[4]];
        assert_eq!(n(&both), 2, "the number for this machine counts");
        let share = Share { ranks: Ranks::counted(4), processors: whole(16) };
        assert_eq!(share.workers(), 4);
        let why = "4 workers on 16 processors: 4 ranks share this machine (processes that \
                   registered)";
        assert_eq!(share.why(4).as_deref(), Some(why));
    }

    #[test]
    fn each_rank_has_a_gpu_of_its_own() {
        let gpu = |variables: &[(&str, &str)]| ranks(variables).gpu();
        assert_eq!((gpu(&[]), gpu(&[("LOCAL_RANK", "x")])), (0, 0));
        let local = ("SLURM_LOCALID", "5");
        let shown = |list| ("CUDA_VISIBLE_DEVICES", list);
        assert_eq!(gpu(&[local]), 5);
        assert_eq!(gpu(&[local, ("LOCAL_RANK", "2")]), 2, "srun started torchrun");
        assert_eq!(gpu(&[local, shown("0,1,2,3,4,5,6,7")]), 5);
        assert_eq!(gpu(&[local, shown("GPU-1f")]), 0, "it is shown its own alone");
        assert_eq!(gpu(&[local, shown("")]), 5);
    }

    #[test]
    fn a_rendezvous_makes_a_group_and_else_a_parent_that_starts_ranks() {
        let group = |at: &[(&str, &str)], parent| {
            let value = |name: &str| {
                let found = at.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            Group::of(value, parent)
        };
        let at = [("MASTER_ADDR", "node1"), ("MASTER_PORT", "29500")];
        let other = [("MASTER_ADDR", "node1"), ("MASTER_PORT", "29501")];
        assert_eq!(group(&at, None), group(&at, Some(7)));
        assert_ne!(group(&at, None), group(&other, None));
        assert_ne!(group(&[], Some(7)), group(&[], Some(8)));
        assert_eq!((group(&[], None), group(&at[..1], None)), (None, None));
    }

    #[test]
    fn what_the_kernel_writes_is_read() {
        assert_eq!(quota_milli("250000 100000\n"), Some(2500));
        assert_eq!(quota_milli("max 100000\n"), None);
        assert_eq!(quota_milli("1 0"), None);
        assert_eq!(n_listed("0-3,8\n"), Some(5));
        assert_eq!((n_listed("0"), n_listed(""), n_listed("3-1")), (Some(1), None, None));
        assert_eq!(torchrun(8).part_of(1 << 30), 1 << 27);
    }
}
