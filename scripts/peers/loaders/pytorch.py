"""PyTorch's DataLoader over torchvision's ImageFolder: what most people have.

  pillow   Pillow decodes and resizes; torchvision's transforms v1, which take 0.25 ms less
           of an image on Pillow than v2 do (measured with torchvision 0.29.2)
  tensor   torchvision.io.decode_jpeg (libjpeg-turbo) and transforms v2 on uint8 tensors

Settings: worker processes that stay (`persistent_workers`), one thread each, two batches ahead
for each worker (the default), one sampler that goes on from epoch to epoch, so that no
worker ever waits for an epoch to begin. Both antialias.
"""

import PIL
import torch
import torchvision
import torchvision.transforms as v1
from torch.utils.data import DataLoader, Sampler
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2

from loaders import AHEAD, MEAN, SIDE, STD, Opened


class Endless(Sampler):
    """A new order every epoch, and no end."""

    def __init__(self, n_samples):
        self.n_samples = n_samples

    def __iter__(self):
        while True:
            yield from torch.randperm(self.n_samples).tolist()

    def __len__(self):
        return 1 << 40


def read_tensor(path):
    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


def data_set(data, name):
    """torchvision's own data set and transforms; bothends is given the same."""
    if name == "tensor":
        crop = [v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()]
        last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
        return ImageFolder(data, v2.Compose([*crop, *last]), loader=read_tensor)
    crop = [v1.RandomResizedCrop(SIDE), v1.RandomHorizontalFlip()]
    return ImageFolder(data, v1.Compose([*crop, v1.ToTensor(), v1.Normalize(MEAN, STD)]))


def version(name):
    pillow = f", Pillow {PIL.__version__}" if name == "pillow" else ""
    return f"torch {torch.__version__}, torchvision {torchvision.__version__}{pillow}"


def opened(name, options):
    data = data_set(options.data, name)

    def make():
        loader = DataLoader(
            data,
            options.batch_size,
            sampler=Endless(len(data)),
            num_workers=options.workers,
            prefetch_factor=AHEAD,
            persistent_workers=True,
            drop_last=True,
        )
        return iter(loader)

    return Opened(make, version(name), True, "torch")
