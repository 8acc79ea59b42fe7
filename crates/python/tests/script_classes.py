"""Classes as training scripts have them: some that are known by their code, and some that only
look like those."""

from __future__ import annotations

import functools
import random
from typing import Any

import torch
import torchvision.transforms as v1
from PIL import Image, ImageFilter, ImageOps
from torchvision.transforms import v2


class Blur:
    """As DINO and DeiT have it."""

    def __init__(self, p: float = 0.5, least: float = 0.1, most: float = 2.0) -> None:
        self.share = p
        self.least = least
        self.most = most

    def __call__(self, img: Any) -> Any:
        is_wanted = random.random() <= self.share
        if not is_wanted:
            return img

        return img.filter(ImageFilter.GaussianBlur(radius=random.uniform(self.least, self.most)))


class NamedBlur(Blur):
    def __call__(self, img: Any) -> Any:
        is_wanted = random.random() <= self.share
        if not is_wanted:
            return img
        img = img.filter(ImageFilter.GaussianBlur(radius=random.uniform(self.least, self.most)))
        return img


class BoxBlur(Blur):
    def __call__(self, img: Any) -> Any:
        is_wanted = random.random() <= self.share
        if not is_wanted:
            return img
        return img.filter(ImageFilter.BoxBlur(radius=random.uniform(self.least, self.most)))


class SwappedBlur(Blur):
    def __call__(self, img: Any) -> Any:
        is_wanted = random.random() <= self.share
        if is_wanted:
            return img
        return img.filter(ImageFilter.GaussianBlur(radius=random.uniform(self.least, self.most)))


class RarerBlur(Blur):
    def __call__(self, img: Any) -> Any:
        is_wanted = random.random() <= self.share
        if not is_wanted:
            return img
        return img.filter(ImageFilter.GaussianBlur(radius=random.uniform(self.least, self.share)))


class RangeBlur:
    """As MoCo has it."""

    def __init__(self, radius: Any = (0.1, 2.0)) -> None:
        self.range = radius

    def __call__(self, x: Any) -> Any:
        radius = random.uniform(self.range[0], self.range[1])
        x = x.filter(ImageFilter.GaussianBlur(radius=radius))
        return x


class Solarization:
    def __init__(self, p: float) -> None:
        self.p = p

    def __call__(self, img: Any) -> Any:
        if random.random() < self.p:
            return ImageOps.solarize(img)
        else:
            return img


class Posterization(Solarization):
    def __call__(self, img: Any) -> Any:
        if random.random() < self.p:
            return ImageOps.posterize(img)
        else:
            return img


class HigherSolarization(Solarization):
    def __call__(self, img: Any) -> Any:
        if random.random() < self.p:
            return ImageOps.solarize(img, 200)
        else:
            return img


class Grey:
    """As DeiT's 3-Augment has it."""

    def __init__(self, p: float = 0.2) -> None:
        self.p = p
        self.grey = v1.Grayscale(3)

    def __call__(self, img: Any) -> Any:
        if random.random() < self.p:
            return self.grey(img)
        else:
            return img


class MultiCrop:
    """As DINO has it."""

    def __init__(self, first: Any, second: Any, small: Any, n: Any = 8) -> None:
        self.large = first
        self.other = second
        self.n_small = n
        self.small = small

    def __call__(self, image: Any) -> Any:
        made = []
        made.append(self.large(image))
        made.append(self.other(image))
        for _ in range(self.n_small):
            made.append(self.small(image))
        return made


class Skips(MultiCrop):
    def __call__(self, image: Any) -> Any:
        made = []
        made.append(self.large(image))
        made.append(self.other(image))
        for _ in range(self.n_small):
            made.append(self.small(made))
        return made


class TwoOfOne:
    """As MoCo has it."""

    def __init__(self, base: Any) -> None:
        self.base = base

    def __call__(self, x: Any) -> Any:
        one = self.base(x)
        two = self.base(x)
        return [one, two]


class TwoOfOneListed(TwoOfOne):
    def __call__(self, x: Any) -> Any:
        return [self.base(x), self.base(x)]


class TwoOfOneTuple(TwoOfOne):
    def __call__(self, x: Any) -> Any:
        return self.base(x), self.base(x)


class Many:
    def __init__(self, base: Any, n: Any) -> None:
        self.base = base
        self.n_views = n

    def __call__(self, x: Any) -> Any:
        return [self.base(x) for i in range(self.n_views)]


class Chained(TwoOfOne):
    def __call__(self, x: Any) -> Any:
        one = self.base(x)
        two = self.base(one)
        return [one, two]


class Swapped(TwoOfOne):
    def __call__(self, x: Any) -> Any:
        one = self.base(x)
        two = self.base(x)
        return [two, one]


class TwoWays:
    """As Barlow Twins and VICReg have it."""

    def __init__(self, one: Any, other: Any) -> None:
        self.transform, self.second = one, other

    def __call__(self, sample: Any) -> Any:
        one = self.transform(sample)
        two = self.second(sample)
        return one, two


class Preset:
    """As torchvision's reference training has it."""

    def __init__(self, transforms: Any) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        return self.transforms(img)


class Described(Preset):
    """A subclass that runs the same code."""

    def __repr__(self) -> str:
        return "described"


class Named:
    def __init__(self, transform: Any) -> None:
        self.pipeline = transform

    def __call__(self, x: Any) -> Any:
        """A docstring changes nothing."""
        out = self.pipeline(x)
        return out


class Renamed:
    def __init__(self, transform: Any) -> None:
        self.t = transform

    def __call__(self, image: Image.Image, /) -> Any:
        image = self.t(image)
        return image


class Module(torch.nn.Module):
    def __init__(self, transform: Any) -> None:
        super().__init__()
        self.transforms = transform

    def forward(self, img: Any) -> Any:
        return self.transforms(img)


class ModuleOfModules(Module):
    def __init__(self, transform: Any) -> None:
        modules = [v2.Compose([t]) for t in transform.transforms]
        super().__init__(torch.nn.Sequential(*modules, torch.nn.Identity()))


class Converts:
    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __call__(self, img: Any) -> Any:
        return self.transform(img.convert("RGB"))


class Twice(Preset):
    def __call__(self, img: Any) -> Any:
        return self.transforms(self.transforms(img))


class Rotates(Preset):
    def __call__(self, img: Any) -> Any:
        return self.transforms(img.rotate(90))


class Counts(Preset):
    def __call__(self, img: Any) -> Any:
        self.n = 1
        return self.transforms(img)


class Pads(Preset):
    def __call__(self, img: Any) -> Any:
        return self.transforms(img) + 1


class Deep(Preset):
    def __call__(self, img: Any) -> Any:
        return self.transforms.transforms(img)


class ToGrey(Preset):
    def __call__(self, img: Any) -> Any:
        return self.transforms(img.convert("L"))


class WithTarget(Preset):
    def __call__(self, img: Any, target: Any = None) -> Any:
        return self.transforms(img)


class Starred(Preset):
    def __call__(self, *img: Any) -> Any:
        return self.transforms(img)


class Lazy(Preset):
    def __call__(self, img: Any) -> Any:
        yield self.transforms(img)


class Kept(Preset):
    def __call__(self, img: Any) -> Any:
        return self.transforms(img, self)


class Decorated(Preset):
    @functools.lru_cache  # noqa: B019
    def __call__(self, img: Any) -> Any:
        return self.transforms(img)


class Watched(Preset):
    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


class Method(Preset):
    def transforms(self, img: Any) -> Any:  # type: ignore[override]
        return img


class CallsItself(torch.nn.Module):
    """Its `__call__` is its own, and `forward` only looks known."""

    def __init__(self, transforms: Any) -> None:
        super().__init__()
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        return self.forward(img).rotate(3)

    def forward(self, img: Any) -> Any:
        return self.transforms(img)
