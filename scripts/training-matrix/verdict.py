"""Compares what a script was given by PyTorch's loader and by ours."""

import json
import math
from collections import Counter, defaultdict

from cases import DRAWN, DROPPED, SAMPLER, SHARDED

# Means over samples are summed up in another order by other numbers of threads and ranks.
FLOAT_NOISE = 1e-5
# Two draws of a random crop hardly ever give the same pixels.
MOST_ALIKE = 0.2
# Ranks share an epoch evenly by a sample or two that come again as they were.
MOST_REPEATED = 0.05


class Notes:
    """What all ranks of a run wrote down."""

    def __init__(self, folder):
        self.lines = []
        for file in sorted(folder.glob("*.jsonl")):
            self.lines += [json.loads(line) for line in file.read_text().splitlines()]

    def of(self, kind):
        return [line for line in self.lines if line["kind"] == kind]

    def by_rank(self, kind):
        """{rank: [batch, ...]}"""
        found = defaultdict(list)
        for line in self.of(kind):
            found[line["rank"]].append(line)
        return dict(found)

    def epochs(self, kind):
        """{epoch: {rank: [labels of a batch, ...]}}"""
        found = defaultdict(lambda: defaultdict(list))
        for line in self.of(kind):
            found[line["epoch"]][line["rank"]].append(line["labels"])
        return {epoch: dict(ranks) for epoch, ranks in found.items()}

    def counts(self, kind, epoch):
        """How often each sample came in an epoch, over all ranks."""
        lines = [line for line in self.of(kind) if line["epoch"] == epoch]
        return Counter(label for line in lines for label in line["labels"])

    def after_the_checkpoint(self):
        """{rank: batches that came after it}"""
        found = {}
        for line in self.lines:
            if line["kind"] == "saved":
                found[line["rank"]] = []
            elif line["kind"] == "train" and line["rank"] in found:
                found[line["rank"]].append(_contents(line))
        return found


def _contents(batch):
    return batch["labels"], batch["digests"]


def front_batches(ours):
    """Batches that bothends made itself, over all ranks and loaders; and why not, if it did not."""
    made = Counter()
    for line in ours.of("loader"):
        if line["front_batches"] is None:
            return 0, f"the {line['name']} loader is a {line['type']} without stats()"
        made[line["name"]] += line["front_batches"]
    if not made:
        return 0, "the script did not come to its end"
    idle = [name for name, n in made.items() if n == 0]
    wrong = f"PyTorch's own loader ran: {', '.join(idle)}" if idle else None
    return sum(made.values()), wrong


def samples(case, theirs, ours):
    """What is wrong with the samples of training, or None."""
    if not case.is_training:
        return None
    expected = theirs.epochs("train")
    got = ours.epochs("train")
    if expected.keys() != got.keys():
        return f"trained epochs {sorted(got)}, PyTorch {sorted(expected)}"
    for epoch, ranks in expected.items():
        wrong = _epoch(case, epoch, (ranks, got[epoch]), (theirs, ours))
        if wrong:
            return f"epoch {epoch}: {wrong}"
    return None


def _epoch(case, epoch, ranks, notes):
    expected, got = ranks
    counts = [each.counts("train", epoch) for each in notes]
    if case.samples == SHARDED:
        return _shared(got, counts)
    if case.samples == DROPPED and counts[1].total() > len(counts[1]):
        return f"{counts[1].total() - len(counts[1])} samples came twice"
    sizes = [{rank: [len(b) for b in epoch] for rank, epoch in of.items()} for of in ranks]
    if sizes[0] != sizes[1]:
        return f"batches of ranks {_brief(sizes[1])}, PyTorch {_brief(sizes[0])}"
    how_often = [Counter(count.values()) for count in counts]
    if how_often[0] != how_often[1] and case.samples not in (DROPPED, DRAWN):
        return f"samples by how often they came {dict(how_often[1])}, PyTorch {dict(how_often[0])}"
    if case.samples == SAMPLER:
        # Of a mixed batch only is known which samples are in it.
        for rank, batches in expected.items():
            if list(map(sorted, batches)) != list(map(sorted, got[rank])):
                return f"rank {rank} has not the order of its sampler"
    return None


def _shared(got, counts):
    """Every sample on one of the ranks, which have as many batches each."""
    n_batches = {len(batches) for batches in got.values()}
    if len(n_batches) != 1:
        return f"ranks have {sorted(n_batches)} batches"
    missing = counts[0].keys() - counts[1].keys()
    n_extra = counts[1].total() - len(counts[1])
    if missing or n_extra >= len(got):
        return f"{len(missing)} samples missing, {n_extra} too many"
    return None


def _brief(sizes):
    return {rank: f"{len(of)} of {sum(of)} samples" for rank, of in sizes.items()}


def evaluation(theirs, ours):
    """What differs in evaluation, or None; and whether all pixels were the same."""
    epochs = theirs.epochs("evaluate").keys()
    if epochs != ours.epochs("evaluate").keys():
        return "other epochs were evaluated", False
    for epoch in epochs:
        expected, got = theirs.counts("evaluate", epoch), ours.counts("evaluate", epoch)
        if expected != got:
            line = f"{got.total()} samples, PyTorch {expected.total()}"
            n_other = len((expected - got) + (got - expected))
            return f"epoch {epoch}: {line}; {n_other} come more or less often", False
    results = [
        {(line["rank"], line["epoch"]): line for line in notes.of("result")}
        for notes in (theirs, ours)
    ]
    if not results[0] or results[0].keys() != results[1].keys():
        return f"{len(results[1])} results, PyTorch {len(results[0])}", False
    for key, expected in results[0].items():
        got = results[1][key]
        if expected["n"] != got["n"]:
            return f"rank, epoch {key}: of {got['n']} samples, PyTorch {expected['n']}", False
        if not math.isclose(expected["loss"], got["loss"], rel_tol=FLOAT_NOISE):
            return f"rank, epoch {key}: loss {got['loss']}, PyTorch {expected['loss']}", False
    return None, _pixels(theirs) == _pixels(ours)


def _pixels(notes):
    return {
        (label, digest)
        for line in notes.of("evaluate")
        for label, digest in zip(line["labels"], line["digests"], strict=True)
    }


def differing(case, ours):
    """Why epochs, or samples that occur several times in one, are equal; or None."""
    if not case.is_training:
        return None
    epochs = ours.epochs("train")
    for epoch in epochs:
        pixels = _digests(ours, epoch)
        alike = 1 - len(set(pixels)) / len(pixels)
        if alike > MOST_REPEATED:
            return f"epoch {epoch}: {alike:.0%} are samples that come again with the same pixels"
    for epoch in sorted(epochs)[1:]:
        before = epochs[epoch - 1]
        same = [r for r, batches in epochs[epoch].items() if before.get(r) == batches]
        if same:
            return f"epoch {epoch} has the order of the one before on ranks {same}"
        pixels = [_digests(ours, each) for each in (epoch - 1, epoch)]
        pixels = [set(each) for each in pixels]
        alike = len(pixels[0] & pixels[1]) / max(1, len(pixels[1]))
        if alike > MOST_ALIKE:
            return f"epoch {epoch}: {alike:.0%} of the samples are augmented as before"
    return None


def _digests(notes, epoch):
    lines = [line for line in notes.of("train") if line["epoch"] == epoch]
    return [digest for line in lines for digest in line["digests"]]


def resumed(case, whole, after):
    """What differs from the run that was never stopped, or None."""
    expected = whole.after_the_checkpoint()
    got = {
        rank: [_contents(batch) for batch in batches]
        for rank, batches in after.by_rank("train").items()
    }
    if len(expected) != case.ranks:
        return f"checkpoints of ranks {sorted(expected)}"
    for rank, batches in expected.items():
        mine = got.get(rank, [])
        if len(mine) != len(batches):
            return f"rank {rank}: {len(mine)} batches came, {len(batches)} were left"
        first = next((i for i, pair in enumerate(zip(mine, batches)) if pair[0] != pair[1]), None)
        if first is not None:
            what = "samples" if mine[first][0] != batches[first][0] else "pixels"
            return f"rank {rank}: batch {first} after the checkpoint has other {what}"
    return None
