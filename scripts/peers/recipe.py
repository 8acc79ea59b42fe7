"""A recipe's samples made with torchvision: what `bothends run --recipe` does.

    recipe.py RECIPE.json DATA pillow|tensor WORKERS BATCH IMAGES

DATA has class folders of JPEG files. A DataLoader's worker processes read files, decode them
(`pillow`: Pillow, as timm does; `tensor`: torchvision's decoder, which gives tensors of bytes),
do the recipe's ops with torchvision's classes of the same names and parameters, normalise to
float32, collect batches in planes and mix them with soft labels. Samples that a recipe repeats
come in a row. timm's RandAugment is in timm_rand_augment.py. Measured over an epoch of IMAGES
images after a short one; prints one JSON object.
"""

import json
import os
import sys
import time
from pathlib import Path

import PIL.Image
import torch
import torchvision
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import InterpolationMode, v2

from timm_rand_augment import TimmRandAugment

# Classes that are not named as other ops are: in camel case.
CLASSES = {"augmix": v2.AugMix, "mixup": v2.MixUp, "cutmix": v2.CutMix, "jpeg": v2.JPEG}
MIXING = {"mixup", "cutmix"}
LONGEST_S = 120


def transform(op):
    """torchvision's class for an op of a recipe; its parameters have the same names."""
    name, parameters = op["op"], {key: value for key, value in op.items() if key != "op"}
    if name == "timm_rand_augment":
        wanted = ["num_layers", "magnitude", "magnitude_std", "increasing", "p"]
        return TimmRandAugment(**{key: parameters[key] for key in wanted})
    if "transforms" in parameters:
        parameters["transforms"] = [transform(inside) for inside in parameters["transforms"]]
    if "interpolation" in parameters:
        parameters["interpolation"] = InterpolationMode(parameters["interpolation"])
    if "policy" in parameters:
        parameters["policy"] = v2.AutoAugmentPolicy(parameters["policy"])
    camel = "".join(word.capitalize() for word in name.split("_"))
    return (CLASSES.get(name) or getattr(v2, camel))(**parameters)


def mixes(op):
    return op["op"] in MIXING or any(mixes(inside) for inside in op.get("transforms", []))


def is_mine(op):
    """Whether this program does it in its own way: decode, cast and lay out."""
    return op["op"] in {"decode", "to_dtype", "layout"}


def per_sample(ops):
    """All ops of one sample; before the first that wants floats it becomes them."""
    names = [op["op"] for op in ops]
    cut = names.index("normalize")
    floats = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    return v2.Compose([*map(transform, ops[:cut]), *floats, *map(transform, ops[cut:])])


class Images(Dataset):
    """Files of class folders."""

    def __init__(self, folder, decode, transform):
        classes = sorted(path for path in Path(folder).iterdir() if path.name[0] != ".")
        self.files = [file for path in classes for file in sorted(path.iterdir())]
        self.labels = [classes.index(path.parent) for path in self.files]
        self.decode, self.transform = decode, transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, nth):
        return self.transform(self.decode(str(self.files[nth]))), self.labels[nth]


def pillow(path):
    return PIL.Image.open(path).convert("RGB")


def tensor(path):
    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


class Repeated(Sampler):
    """`n_samples` of a shuffled data set, each as often in a row as the recipe says."""

    def __init__(self, n_files, repetitions):
        self.n_files, self.repetitions, self.n_samples = n_files, repetitions, 0

    def __len__(self):
        return self.n_samples

    def __iter__(self):
        n_given = 0
        while n_given < self.n_samples:
            for nth in torch.randperm(self.n_files).tolist():
                for _ in range(self.repetitions):
                    if n_given < self.n_samples:
                        n_given += 1
                        yield nth


class Collect:
    """Samples become a batch, which is mixed; done by the workers."""

    def __init__(self, mix):
        self.mix = mix

    def __call__(self, samples):
        batch, labels = default_collate(samples)
        return self.mix(batch, labels) if self.mix else (batch, labels)


def one_thread(_):
    torch.set_num_threads(1)


def cpu_seconds(workers):
    """CPU time of this process and of its workers."""
    seconds = time.process_time()
    for worker in workers:
        fields = Path(f"/proc/{worker.pid}/stat").read_text().rsplit(")", 1)[1].split()
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def main():
    recipe, data, decoder, n_workers, n_batch, n_images = sys.argv[1:]
    recipe = json.loads(Path(recipe).read_text())
    ops = [op for op in recipe["ops"] if not is_mine(op)]
    mixing = [transform(op) for op in ops if mixes(op)]
    whole = per_sample([op for op in ops if not mixes(op)])
    images = Images(data, {"pillow": pillow, "tensor": tensor}[decoder], whole)
    sampler = Repeated(len(images), recipe.get("repeated_augment", 1))
    loader = DataLoader(
        images, int(n_batch), sampler=sampler, num_workers=int(n_workers), drop_last=True,
        collate_fn=Collect(mixing[0] if mixing else None), persistent_workers=True,
        worker_init_fn=one_thread, timeout=LONGEST_S,
    )
    torch.manual_seed(0)
    torch.set_num_threads(1)
    # Whole batches, the first of them uncounted; each worker's libraries are ready then.
    sampler.n_samples = 2 * int(n_workers) * int(n_batch)
    for _ in loader:
        pass
    workers = loader._iterator._workers
    sampler.n_samples = max(1, int(n_images) // int(n_batch)) * int(n_batch)
    start, cpu, n_made = time.perf_counter(), cpu_seconds(workers), 0
    for batch, _ in loader:
        assert batch.dtype == torch.float32 and batch.shape[1] == 3, batch.shape
        n_made += len(batch)
    seconds, cpu = time.perf_counter() - start, cpu_seconds(workers) - cpu
    print(json.dumps({
        "torchvision": torchvision.__version__,
        "pillow": PIL.__version__,
        "images": n_made,
        "images_per_s": n_made / seconds,
        "cpu_us_per_image": cpu / n_made * 1e6,
    }))


if __name__ == "__main__":
    main()
