"""Transforms in the shape of torchvision's references/classification/presets.py: wrappers that
hold a `Compose`."""

import torch
from torchvision.transforms import autoaugment, transforms
from torchvision.transforms.functional import InterpolationMode

import tiny


class ClassificationPresetTrain:
    def __init__(
        self,
        *,
        crop_size,
        auto_augment_policy=None,
        random_erase_prob=0.0,
        interpolation=InterpolationMode.BILINEAR,
    ):
        steps = [
            transforms.RandomResizedCrop(crop_size, interpolation=interpolation, antialias=True),
            transforms.RandomHorizontalFlip(0.5),
        ]
        if auto_augment_policy == "ra":
            steps.append(autoaugment.RandAugment(interpolation=interpolation, magnitude=9))
        elif auto_augment_policy == "ta_wide":
            steps.append(autoaugment.TrivialAugmentWide(interpolation=interpolation))
        steps += [
            transforms.PILToTensor(),
            transforms.ConvertImageDtype(torch.float),
            transforms.Normalize(mean=tiny.MEAN, std=tiny.STD),
        ]
        if random_erase_prob > 0:
            steps.append(transforms.RandomErasing(p=random_erase_prob))
        self.transforms = transforms.Compose(steps)

    def __call__(self, img):
        return self.transforms(img)


class ClassificationPresetEval:
    def __init__(self, *, crop_size, resize_size, interpolation=InterpolationMode.BILINEAR):
        self.transforms = transforms.Compose(
            [
                transforms.Resize(resize_size, interpolation=interpolation, antialias=True),
                transforms.CenterCrop(crop_size),
                transforms.PILToTensor(),
                transforms.ConvertImageDtype(torch.float),
                transforms.Normalize(mean=tiny.MEAN, std=tiny.STD),
            ]
        )

    def __call__(self, img):
        return self.transforms(img)
