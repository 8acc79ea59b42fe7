"""What loaders without ops of their own do to an image: a random box, a size, planes of float32.

OpenCV makes the box smaller without smoothing first, as most hand-written loaders do. With
`INTER_AREA` it would smooth, and take longer.
"""

import math
import random

import cv2
import numpy as np

from loaders import MEAN, SIDE, STD

# One image at a time on each of the loader's own threads.
cv2.setNumThreads(0)
# What each value of a channel becomes: the fastest way that OpenCV and NumPy have.
VALUES = np.arange(256, dtype=np.float32) / 255
TABLES = [(VALUES - mean) / std for mean, std in zip(np.float32(MEAN), np.float32(STD))]
PLANES = (3, SIDE, SIDE)


def box(height, width):
    """RandomResizedCrop's box, as torchvision draws it: top, left, height, width."""
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < columns <= width and 0 < rows <= height:
            top, left = random.randint(0, height - rows), random.randint(0, width - columns)
            return top, left, rows, columns
    rows = min(height, round(width / (3 / 4)))
    columns = min(width, round(height * (4 / 3)))
    return (height - rows) // 2, (width - columns) // 2, rows, columns


def decoded(data):
    """A JPEG file's pixels by OpenCV: rows x columns x RGB."""
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)


def finish(image, out):
    """Box, size, flip and normalisation of an image, into planes of its own."""
    top, left, rows, columns = box(*image.shape[:2])
    cut = image[top : top + rows, left : left + columns]
    small = cv2.resize(cut, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    if random.random() < 0.5:
        small = cv2.flip(small, 1)
    for plane, table, into in zip(cv2.split(small), TABLES, out, strict=True):
        cv2.LUT(plane, table, into)
