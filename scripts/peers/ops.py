"""torchvision and OpenCV doing the ops that `bothends bench ops --peers PYTHON` measures.

Says `peers` on its first line, then reads requests from standard input and answers each with
one line:

    image source 375 500     rows, columns, and behind the line the pixels (RGB); the photograph
    image sample 224 224     the sample
                             answer: what the peers are
    measure PEER MS OP [NAME=VALUE ...]
                             answer: microseconds per image, and where one image is made the mean
                             of its values; - where the peer has no such op

Every peer gets images in its own form, and gives results in it: `tensor` bytes in planes,
`pillow` Pillow's images, `opencv` arrays of rows, columns and channels. Ops are torchvision's
functional calls, or its classes where something is drawn. A view is no result: crops are made
images of their own. One thread each. A request that fails is answered with `error WHY`.
"""

import random
import sys
import time

# Before the libraries, which take their time: now it is known that this is Python.
print("peers", flush=True)

try:
    import cv2
    import numpy as np
    import PIL.Image
    import torch
    import torchvision
    from torchvision.transforms import InterpolationMode, v2
    from torchvision.transforms.v2 import functional as F

    from timm_rand_augment import TimmRandAugment
except ImportError as missing:
    sys.stdin.buffer.readline()
    print(f"error {missing}; pip install torch torchvision numpy pillow opencv-python-headless")
    sys.exit(0)

DRAWS = 256
BATCH, BATCHES = 64, 16
TIMED_S = 1e-3
LEAST_TIMES = 3
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]

CV_FILTERS = {
    "nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC
}


class Parameters(dict):
    """What follows an op: words, numbers, or numbers with commas between them."""

    def __init__(self, words):
        super().__init__(word.split("=", 1) for word in words)

    def number(self, name):
        return float(self[name])

    def whole(self, name):
        return int(self[name])

    def numbers(self, name):
        return [float(part) for part in self[name].split(",")]

    def wholes(self, name):
        return [int(part) for part in self[name].split(",")]

    def filter(self):
        return InterpolationMode[self["interpolation"].upper()]


def corners(p):
    """Where an image's corners are, and where they come to lie: [column, row]."""
    far = SIDE - 1
    ends = p.numbers("endpoints")
    return [[0, 0], [far, 0], [far, far], [0, far]], [ends[i:i + 2] for i in range(0, 8, 2)]


SIDE = 224


# -- torchvision, both on tensors and on Pillow's images -----------------------------------


def own(image):
    """Not a view: an image with pixels of its own."""
    return image.contiguous() if isinstance(image, torch.Tensor) else image


def jitter(image, p):
    image = F.adjust_brightness(image, p.number("brightness"))
    image = F.adjust_contrast(image, p.number("contrast"))
    image = F.adjust_saturation(image, p.number("saturation"))
    return F.adjust_hue(image, p.number("hue"))


def delivered(image):
    floats = F.to_dtype(F.to_image(image), torch.float32, scale=True)
    return F.normalize(floats, MEAN, STD)


# What is done with the sample, or with the photograph.
TORCHVISION = {
    "adjust_brightness": lambda x, p: F.adjust_brightness(x, p.number("factor")),
    "adjust_contrast": lambda x, p: F.adjust_contrast(x, p.number("factor")),
    "adjust_saturation": lambda x, p: F.adjust_saturation(x, p.number("factor")),
    "adjust_hue": lambda x, p: F.adjust_hue(x, p.number("factor")),
    "color_jitter": jitter,
    "rgb_to_grayscale": lambda x, p: own(F.rgb_to_grayscale(x, p.whole("num_output_channels"))),
    "gaussian_blur": lambda x, p: F.gaussian_blur(
        x, [p.whole("kernel_size")] * 2, [p.number("sigma")] * 2),
    "adjust_sharpness": lambda x, p: F.adjust_sharpness(x, p.number("factor")),
    "autocontrast": lambda x, p: F.autocontrast(x),
    "equalize": lambda x, p: F.equalize(x),
    "invert": lambda x, p: F.invert(x),
    "posterize": lambda x, p: F.posterize(x, p.whole("bits")),
    "solarize": lambda x, p: F.solarize(x, p.whole("threshold")),
    "jpeg": lambda x, p: F.jpeg(x, p.whole("quality")),
    "rotate": lambda x, p: F.rotate(x, p.number("angle"), p.filter()),
    "affine": lambda x, p: F.affine(
        x, p.number("angle"), p.numbers("translate"), p.number("scale"), p.numbers("shear"),
        p.filter()),
    "perspective": lambda x, p: F.perspective(x, *corners(p), p.filter()),
    "pad": lambda x, p: F.pad(x, p.whole("padding"), padding_mode=p["padding_mode"]),
    "crop": lambda x, p: own(F.crop(x, *p.wholes("box"))),
    "five_crop": lambda x, p: [own(view) for view in F.five_crop(x, [p.whole("size")] * 2)],
    "horizontal_flip": lambda x, p: F.horizontal_flip(x),
    "vertical_flip": lambda x, p: F.vertical_flip(x),
    "resize": lambda x, p: F.resize(x, p.wholes("size"), p.filter(), antialias=True),
    "resized_crop": lambda x, p: F.resized_crop(
        x, *p.wholes("box"), p.wholes("size"), p.filter(), antialias=True),
    "erase": lambda x, p: F.erase(
        x, *p.wholes("box"), v=torch.full([1, 1, 1], p.whole("value"), dtype=torch.uint8)),
    "normalize": lambda x, p: delivered(x),
}

# What draws; done DRAWS times.
TORCHVISION_DRAWN = {
    "random_erasing": lambda p: after_normalize(v2.RandomErasing(p=1, value=p["value"])),
    "rand_augment": lambda p: v2.RandAugment(p.whole("num_ops"), p.whole("magnitude")),
    "trivial_augment_wide": lambda p: v2.TrivialAugmentWide(),
    "auto_augment": lambda p: v2.AutoAugment(v2.AutoAugmentPolicy(p["policy"])),
    "augmix": lambda p: v2.AugMix(p.whole("severity"), p.whole("mixture_width")),
    "timm_rand_augment": lambda p: TimmRandAugment(
        p.whole("num_layers"), p.number("magnitude"), p.number("magnitude_std"),
        p["increasing"] == "true", p.number("p")),
}


def after_normalize(erase):
    return lambda image: erase(delivered(image))


def torchvision_task(op, p, images):
    """Something to call, and how many images it makes."""
    if op in TORCHVISION_DRAWN:
        drawn, sample = TORCHVISION_DRAWN[op](p), images["sample"]

        def draw():
            torch.manual_seed(0)
            random.seed(0)
            for _ in range(DRAWS):
                drawn(sample)

        return draw, DRAWS
    if op not in TORCHVISION:
        return None
    do = TORCHVISION[op]
    image = images["source" if op in FROM_SOURCE else "sample"]
    return lambda: do(image, p), 1


FROM_SOURCE = {"resize", "resized_crop"}


def tensor_task(op, p, images):
    if p.get("interpolation") == "bicubic" and op not in FROM_SOURCE:
        return None
    if op not in {"mixup", "cutmix"}:
        return torchvision_task(op, p, images)
    mix = {"mixup": v2.MixUp, "cutmix": v2.CutMix}[op](alpha=p.number("alpha"), num_classes=1000)
    batch = delivered(images["sample"]).repeat(BATCH, 1, 1, 1)
    labels = torch.arange(BATCH)

    def mixed():
        torch.manual_seed(0)
        for _ in range(BATCHES):
            mix(batch, labels)

    return mixed, BATCHES * BATCH


# -- OpenCV ---------------------------------------------------------------------------------


def table(values):
    return np.clip(values, 0, 255).astype(np.uint8)


def scaled(image, factor, mean=0):
    return cv2.LUT(image, table(np.arange(256) * factor + mean * (1 - factor)))


def contrast(image, factor):
    return scaled(image, factor, cv2.mean(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))[0])


def gray(image):
    return cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)


def saturation(image, factor):
    return cv2.addWeighted(image, factor, gray(image), 1 - factor, 0)


def hue(image, factor):
    turned = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)
    h, s, v = cv2.split(turned)
    h = cv2.LUT(h, np.mod(np.arange(256) + factor * 180, 180).astype(np.uint8))
    return cv2.cvtColor(cv2.merge([h, s, v]), cv2.COLOR_HSV2RGB)


def cv_jitter(image, p):
    image = scaled(image, p.number("brightness"))
    image = contrast(image, p.number("contrast"))
    return hue(saturation(image, p.number("saturation")), p.number("hue"))


def cv_sharpness(image, factor):
    smooth = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13
    return cv2.addWeighted(image, factor, cv2.filter2D(image, -1, smooth), 1 - factor, 0)


def cv_autocontrast(image):
    stretched = []
    for channel in cv2.split(image):
        low, high, *_ = cv2.minMaxLoc(channel)
        scale = 255 / max(1, high - low)
        stretched.append(cv2.LUT(channel, table((np.arange(256) - low) * scale)))
    return cv2.merge(stretched)


def cv_equalize(image):
    return cv2.merge([cv2.equalizeHist(channel) for channel in cv2.split(image)])


def cv_jpeg(image, quality):
    _, file = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return cv2.imdecode(file, cv2.IMREAD_COLOR)


def cv_rotate(image, p):
    middle = (SIDE - 1) / 2
    turn = cv2.getRotationMatrix2D((middle, middle), p.number("angle"), 1)
    return cv2.warpAffine(image, turn, (SIDE, SIDE), flags=CV_FILTERS[p["interpolation"]])


def cv_affine(image, p):
    middle = (SIDE - 1) / 2
    turn = np.vstack([cv2.getRotationMatrix2D((0, 0), -p.number("angle"), p.number("scale")),
                      [0, 0, 1]])
    shear = np.eye(3)
    shear[0, 1] = -np.tan(np.radians(p.numbers("shear")[0]))
    to, back = np.eye(3), np.eye(3)
    to[:2, 2] = -middle
    back[:2, 2] = middle + np.array(p.numbers("translate"))
    whole = (back @ turn @ shear @ to)[:2]
    return cv2.warpAffine(image, whole, (SIDE, SIDE), flags=CV_FILTERS[p["interpolation"]])


def cv_perspective(image, p):
    begin, end = (np.array(points, np.float32) for points in corners(p))
    tilt = cv2.getPerspectiveTransform(begin, end)
    return cv2.warpPerspective(image, tilt, (SIDE, SIDE), flags=CV_FILTERS[p["interpolation"]])


def cv_pad(image, p):
    mode = {"constant": cv2.BORDER_CONSTANT, "reflect": cv2.BORDER_REFLECT_101}
    by = p.whole("padding")
    return cv2.copyMakeBorder(image, by, by, by, by, mode[p["padding_mode"]])


def cut(image, box):
    top, left, height, width = box
    return np.ascontiguousarray(image[top:top + height, left:left + width])


def cv_five_crop(image, side):
    far, half = SIDE - side, (SIDE - side) // 2
    corners = [(0, 0), (0, far), (far, 0), (far, far), (half, half)]
    return [cut(image, [top, left, side, side]) for top, left in corners]


def cv_resize(image, p):
    # The one that averages what it makes smaller.
    by = cv2.INTER_AREA if p["interpolation"] == "bilinear" else CV_FILTERS[p["interpolation"]]
    height, width = p.wholes("size")
    return cv2.resize(image, (width, height), interpolation=by)


def cv_erase(image, p):
    top, left, height, width = p.wholes("box")
    image = image.copy()
    image[top:top + height, left:left + width] = p.whole("value")
    return image


NORMALIZED = ((np.arange(256)[:, None] / 255 - MEAN) / STD).astype(np.float32)[None]
SOLARIZED = {128: table(np.where(np.arange(256) >= 128, 255 - np.arange(256), np.arange(256)))}

OPENCV = {
    "adjust_brightness": lambda x, p: scaled(x, p.number("factor")),
    "adjust_contrast": lambda x, p: contrast(x, p.number("factor")),
    "adjust_saturation": lambda x, p: saturation(x, p.number("factor")),
    "adjust_hue": lambda x, p: hue(x, p.number("factor")),
    "color_jitter": cv_jitter,
    "rgb_to_grayscale": lambda x, p: gray(x),
    "gaussian_blur": lambda x, p: cv2.GaussianBlur(
        x, [p.whole("kernel_size")] * 2, p.number("sigma"), borderType=cv2.BORDER_REFLECT_101),
    "adjust_sharpness": lambda x, p: cv_sharpness(x, p.number("factor")),
    "autocontrast": lambda x, p: cv_autocontrast(x),
    "equalize": lambda x, p: cv_equalize(x),
    "invert": lambda x, p: cv2.bitwise_not(x),
    "posterize": lambda x, p: cv2.LUT(x, table(np.arange(256) & -(1 << 8 - p.whole("bits")))),
    "solarize": lambda x, p: cv2.LUT(x, SOLARIZED[p.whole("threshold")]),
    "jpeg": lambda x, p: cv_jpeg(x, p.whole("quality")),
    "rotate": cv_rotate,
    "affine": cv_affine,
    "perspective": cv_perspective,
    "pad": cv_pad,
    "crop": lambda x, p: cut(x, p.wholes("box")),
    "five_crop": lambda x, p: cv_five_crop(x, p.whole("size")),
    "horizontal_flip": lambda x, p: cv2.flip(x, 1),
    "vertical_flip": lambda x, p: cv2.flip(x, 0),
    "resize": cv_resize,
    "resized_crop": lambda x, p: cv_resize(cut_view(x, p.wholes("box")), p),
    "erase": cv_erase,
    # In planes, as the others have it.
    "normalize": lambda x, p: cv2.split(cv2.LUT(x, NORMALIZED)),
}


def cut_view(image, box):
    top, left, height, width = box
    return image[top:top + height, left:left + width]


def opencv_task(op, p, images):
    if op == "mixup":
        one = cv2.LUT(images["sample"], NORMALIZED)
        batch = [one.copy() for _ in range(BATCH)]

        def mixed():
            for _ in range(BATCHES):
                share = np.random.beta(p.number("alpha"), p.number("alpha"))
                for nth in range(BATCH):
                    cv2.addWeighted(batch[nth], share, batch[nth - 1], 1 - share, 0)

        return mixed, BATCHES * BATCH
    if op not in OPENCV:
        return None
    do = OPENCV[op]
    image = images["source" if op in FROM_SOURCE else "sample"]
    return lambda: do(image, p), 1


# -- measuring ------------------------------------------------------------------------------


TASKS = {"tensor": tensor_task, "pillow": torchvision_task, "opencv": opencv_task}


def mean_value(made):
    """Of an image of bytes."""
    if isinstance(made, (torch.Tensor, np.ndarray, PIL.Image.Image)):
        values = np.asarray(made)
        if values.dtype == np.uint8:
            return f" {values.mean():.3f}"
    return ""


def measure(words, images):
    peer, at_least_s, op = words[0], int(words[1]) / 1e3, words[2]
    task = TASKS[peer](op, Parameters(words[3:]), images[peer])
    if task is None:
        return "-"
    run, n_images = task
    made = run()
    start = time.perf_counter()
    run()
    repeats = max(1, int(TIMED_S / (time.perf_counter() - start)))
    start, times = time.perf_counter(), []
    while len(times) < LEAST_TIMES or time.perf_counter() - start < at_least_s:
        begin = time.perf_counter()
        for _ in range(repeats):
            run()
        times.append(time.perf_counter() - begin)
    return f"{min(times) * 1e6 / (repeats * n_images)}{mean_value(made)}"


def take_image(words, images):
    name, height, width = words[0], int(words[1]), int(words[2])
    pixels = sys.stdin.buffer.read(height * width * 3)
    array = np.frombuffer(pixels, np.uint8).reshape(height, width, 3).copy()
    images["opencv"][name] = array
    images["pillow"][name] = PIL.Image.fromarray(array)
    images["tensor"][name] = torch.from_numpy(array).permute(2, 0, 1).contiguous()
    versions = [("torch", torch), ("torchvision", torchvision), ("Pillow", PIL), ("OpenCV", cv2)]
    return ", ".join(f"{name} {module.__version__}" for name, module in versions)


def main():
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    images = {peer: {} for peer in TASKS}
    answers = {"image": take_image, "measure": measure}
    for line in iter(sys.stdin.buffer.readline, b""):
        what, *words = line.decode().split()
        try:
            answer = answers[what](words, images)
        except Exception as why:
            answer = f"error {type(why).__name__}: {why}".replace("\n", " ")
        print(answer, flush=True)


if __name__ == "__main__":
    main()
