"""RandAugment as timm defines it, in torchvision's functional calls.

The fifteen ops, their strengths and their chance are timm's (`rand-m7-n2-mstd0.5-inc1` and the
like); the pixels are made by torchvision, on Pillow's images or on tensors. torchvision warps
tensors by nearest and bilinear alone, so where timm draws bicubic, tensors get bilinear.
"""

import math
import random

import PIL.Image
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

MOST = 10
FILL = [124, 116, 104]


def signed(value):
    return -value if random.random() > 0.5 else value


class TimmRandAugment:
    """Draws `num_layers` of the ops for every image it is called with."""

    def __init__(self, num_layers, magnitude, magnitude_std, increasing=True, p=0.5):
        self.num_layers, self.magnitude, self.magnitude_std = num_layers, magnitude, magnitude_std
        self.increasing, self.p = increasing, p
        self.ops = [
            self.autocontrast, self.equalize, self.invert, self.rotate, self.posterize,
            self.solarize, self.solarize_add, self.saturation, self.contrast, self.brightness,
            self.sharpness, self.shear_x, self.shear_y, self.translate_x, self.translate_y,
        ]

    def __call__(self, image):
        for op in random.choices(self.ops, k=self.num_layers):
            if random.random() <= self.p:
                level = random.gauss(self.magnitude, self.magnitude_std)
                image = op(image, max(0, min(MOST, level)) / MOST)
        return image

    def autocontrast(self, image, _):
        return F.autocontrast(image)

    def equalize(self, image, _):
        return F.equalize(image)

    def invert(self, image, _):
        return F.invert(image)

    def posterize(self, image, level):
        bits = int(level * 4)
        return F.posterize(image, 4 - bits if self.increasing else bits)

    def solarize(self, image, level):
        threshold = min(256, int(level * 256))
        threshold = 256 - threshold if self.increasing else threshold
        # torchvision refuses thresholds above 255 for tensors; nothing is inverted then.
        return image if threshold > 255 else F.solarize(image, threshold)

    def solarize_add(self, image, level):
        addition = min(128, int(level * 110))
        if isinstance(image, PIL.Image.Image):
            table = [min(255, i + addition) if i < 128 else i for i in range(256)]
            return image.point(table * len(image.getbands()))
        return torch.where(image < 128, image + addition, image)

    def enhanced(self, level):
        return max(0.1, 1 + signed(level * 0.9)) if self.increasing else level * 1.8 + 0.1

    def saturation(self, image, level):
        return F.adjust_saturation(image, self.enhanced(level))

    def contrast(self, image, level):
        return F.adjust_contrast(image, self.enhanced(level))

    def brightness(self, image, level):
        return F.adjust_brightness(image, self.enhanced(level))

    def sharpness(self, image, level):
        return F.adjust_sharpness(image, self.enhanced(level))

    def rotate(self, image, level):
        return F.rotate(image, signed(level * 30), self.filter(image), fill=FILL)

    def shear_x(self, image, level):
        return self.moved(image, shear=[-math.degrees(math.atan(signed(level * 0.3))), 0])

    def shear_y(self, image, level):
        return self.moved(image, shear=[0, -math.degrees(math.atan(signed(level * 0.3)))])

    def translate_x(self, image, level):
        return self.moved(image, translate=[-signed(level * 0.45) * F.get_size(image)[1], 0])

    def translate_y(self, image, level):
        return self.moved(image, translate=[0, -signed(level * 0.45) * F.get_size(image)[0]])

    def moved(self, image, translate=(0, 0), shear=(0, 0)):
        return F.affine(
            image, 0, list(translate), 1.0, list(shear), self.filter(image),
            fill=FILL, center=[0, 0],
        )

    def filter(self, image):
        both = [InterpolationMode.BILINEAR, InterpolationMode.BICUBIC]
        drawn = random.choice(both)
        return drawn if isinstance(image, PIL.Image.Image) else both[0]
