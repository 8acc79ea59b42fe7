#!/usr/bin/env python3
"""How fast networks train when they are fed in different ways: for `scripts/check-gpu`.

    train.py --data FOLDER --store STORE [--ordinal N] [--quick] [--depth 18|50]... [--only TEXT]...

ResNet-50 and ResNet-18 in bf16 (autocast, channels_last, eager), batches of 256 photographs at 224,
normalised on the GPU where they come as bytes. One JSON object a line: what was fed how, images a second, and its part of
the rate of synthetic data, which lie in the GPU's memory all the time. What is fed:

* bothends with `device="cuda"`, from files and from a store, as bytes and as f32;
* bothends with `pin_memory=True`, whose batches the script copies itself;
* the same from two workers with the GPU as a prong next to them (`csds=["cuda:N"]`);
* PyTorch's own DataLoader, with a worker for each processor, Pillow and `pin_memory`;
* torchvision with nvJPEG: files read by a DataLoader, decoded and cropped on the GPU.

Needs PyTorch with CUDA and the package bothends. The networks are written out here, so that
torchvision is not needed; with Pillow or torchvision missing, what needs it is skipped.

With `calls.so` (`scripts/gpu/calls.c`) preloaded, it also tells which calls of the driver the feed made in its steady state.
"""

import argparse
import ctypes
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

BATCH, SIDE = 256, 224
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
# In one: the workers of PyTorch's loader shall not begin again in the middle.
EPOCHS = 800
# For the steps of one feed, which are as many as of any other otherwise.
LONGEST_S = 12
# Of synthetic data's rate: fed to the GPU, and by two workers with the GPU as a prong.
FED_BAR, PRONG_BAR = 0.99, 0.97


class Block(nn.Module):
    """A residual block: two 3 x 3 convolutions, or a bottleneck of three."""

    def __init__(self, before: int, width: int, stride: int, is_deep: bool) -> None:
        super().__init__()
        after = 4 * width if is_deep else width
        shapes = (
            [(before, width, 1, 1), (width, width, 3, stride), (width, after, 1, 1)]
            if is_deep
            else [(before, width, 3, stride), (width, after, 3, 1)]
        )
        layers: list[nn.Module] = []
        for n_in, n_out, kernel, step in shapes:
            layers += [
                nn.Conv2d(n_in, n_out, kernel, step, kernel // 2, bias=False),
                nn.BatchNorm2d(n_out),
                nn.ReLU(inplace=True),
            ]
        self.body = nn.Sequential(*layers[:-1])
        self.short = nn.Identity()
        if stride != 1 or before != after:
            conv = nn.Conv2d(before, after, 1, stride, bias=False)
            self.short = nn.Sequential(conv, nn.BatchNorm2d(after))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(images) + self.short(images))


def resnet(depth: int) -> nn.Module:
    is_deep = depth == 50
    n_blocks = [3, 4, 6, 3] if is_deep else [2, 2, 2, 2]
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    before = 64
    for nth, n in enumerate(n_blocks):
        width = 64 << nth
        for i in range(n):
            stride = 2 if i == 0 and nth > 0 else 1
            layers.append(Block(before, width, stride, is_deep))
            before = 4 * width if is_deep else width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000)]
    return nn.Sequential(*layers)


class Trainer:
    """A network and what a step of it is."""

    def __init__(self, depth: int, device: torch.device) -> None:
        self.device = device
        net = resnet(depth).to(device, memory_format=torch.channels_last)
        self.net = net
        self.optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        self.mean = torch.tensor([255 * m for m in MEAN], device=device).view(1, 3, 1, 1)
        self.std = torch.tensor([255 * s for s in STD], device=device).view(1, 3, 1, 1)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        if images.dtype == torch.uint8:
            images = (images.float() - self.mean) / self.std
        images = images.to(memory_format=torch.channels_last)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(self.net(images), labels)
        loss.backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def rate(self, batches, n_warm: int, n: int) -> float:
        """Images a second of `n` steps behind those that warm up; of fewer where these take long."""
        began, steps, n_pageable = 0.0, 0, 0
        for images, labels, *_ in batches:
            if steps == n_warm:
                torch.cuda.synchronize(self.device)
                Calls.begin()
                began = time.perf_counter()
            n_pageable += not (images.is_cuda or images.is_pinned())
            images = images.to(self.device, non_blocking=True)
            self.step(images, labels.to(self.device, non_blocking=True))
            steps += 1
            is_long = steps > n_warm and time.perf_counter() - began > LONGEST_S
            if steps == n_warm + n or is_long:
                break
        torch.cuda.synchronize(self.device)
        took = time.perf_counter() - began
        # Before the feed is closed, which frees memory.
        Calls.end()
        if n_pageable:
            print(f"{n_pageable} of {steps} batches were neither on the GPU nor pinned", file=sys.stderr)
        return BATCH * (steps - n_warm) / took


class Calls:
    """The calls of NVIDIA's driver that bothends makes, where they are counted."""

    counting = ctypes.CDLL(None)
    can_count = hasattr(counting, "calls_begin")
    seen: dict = {}

    @classmethod
    def begin(cls) -> None:
        if cls.can_count:
            cls.counting.calls_begin()

    @classmethod
    def end(cls) -> None:
        if cls.can_count:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "calls"
                cls.counting.calls_write(str(path).encode())
                cls.seen = {line["call"]: line for line in map(json.loads, path.read_text().splitlines())}

    @classmethod
    def tell(cls, what: str) -> None:
        """No call that waits for the device or allocates, and no copy that takes its caller's time."""
        if not cls.can_count:
            print(json.dumps({"check": f"{what}: calls", "skipped": "they are not counted"}), flush=True)
            return
        seen = cls.seen
        words = ("Synchronize", "Alloc", "Free", "Host", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2")
        rare = [call for call in seen if any(word in call for word in words)]
        found = {call: seen[call]["n"] for call in rare if seen[call]["n"]}
        detail = f"{found or 'none'}; all: { {call: line['n'] for call, line in seen.items() if line['n']} }"
        check = f"{what}: no call that waits or allocates"
        print(
            json.dumps({"check": check, "value": not found, "passed": not found, "detail": detail}),
            flush=True,
        )
        copy = seen["cuMemcpyHtoDAsync_v2"]["longest_us"]
        tell(f"{what}: longest call of a copy", copy, "µs", most=50)


def synthetic(device: torch.device):
    images = torch.randint(0, 256, (BATCH, 3, SIDE, SIDE), dtype=torch.uint8, device=device)
    labels = torch.randint(0, 1000, (BATCH,), device=device)
    while True:
        yield images, labels


def ours(data: Path, ordinal: int, **more):
    """Batches on the GPU, epoch after epoch. An epoch has many, so that few ends are in a rate."""
    import bothends

    loader = bothends.Loader(
        data,
        "imagenet-train",
        batch_size=BATCH,
        repeat=40,
        last="drop",
        **{"output": "u8", "layout": "nchw", "device": f"cuda:{ordinal}"} | more,
    )
    try:
        while True:
            yield from loader
    finally:
        loader.close()


class Pictures(torch.utils.data.Dataset):
    """What torchvision's ImageFolder and transforms do, by Pillow alone."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(path for path in folder.rglob("*") if path.is_file()) * EPOCHS

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, nth: int):
        from PIL import Image

        image = Image.open(self.paths[nth]).convert("RGB")
        width, height = image.size
        scale = 0.08 + 0.92 * torch.rand(()).item()
        side = max(1, int(min(width, height) * scale**0.5))
        left = int(torch.randint(0, width - side + 1, ()))
        top = int(torch.randint(0, height - side + 1, ()))
        image = image.resize((SIDE, SIDE), Image.BILINEAR, (left, top, left + side, top + side))
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        return pixels.view(SIDE, SIDE, 3).permute(2, 0, 1), nth % 1000


def theirs(data: Path):
    loader = torch.utils.data.DataLoader(
        Pictures(data),
        BATCH,
        shuffle=True,
        num_workers=os.cpu_count() or 1,
        pin_memory=True,
        drop_last=True,
    )
    while True:
        yield from loader


class Bytes(Pictures):
    """The bytes of JPEG files: as bytes, since each tensor of a worker would take a file descriptor."""

    def __getitem__(self, nth: int):
        return self.paths[nth].read_bytes(), nth % 1000


def pairs(samples):
    return tuple(zip(*samples))


def nvjpeg(data: Path, device: torch.device):
    """What torchvision's documentation shows: nvJPEG decodes whole files, and the GPU crops them."""
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms import v2

    crop = v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()])
    n_workers = os.cpu_count() or 1
    loader = torch.utils.data.DataLoader(
        Bytes(data), BATCH, shuffle=True, num_workers=n_workers, drop_last=True, collate_fn=pairs
    )
    while True:
        for files, labels in loader:
            files = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in files]
            images = decode_jpeg(files, mode=ImageReadMode.RGB, device=device)
            yield torch.stack([crop(image) for image in images]), torch.tensor(labels)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--ordinal", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--depth", type=int, action="append", choices=[18, 50])
    parser.add_argument("--only", action="append", default=[], help="feeds whose names have this in them")
    args = parser.parse_args()
    device = torch.device("cuda", args.ordinal)
    torch.cuda.set_device(device)
    torch.backends.cudnn.benchmark = True
    pinned = {"device": None, "pin_memory": True}
    gpu = {"workers": 2, "csds": [f"cuda:{args.ordinal}"], "require_devices": True}
    feeds = [
        ("bothends from files, u8", lambda: ours(args.data, args.ordinal), FED_BAR),
        ("bothends from a store, u8", lambda: ours(args.store, args.ordinal), FED_BAR),
        ("bothends from files, f32", lambda: ours(args.data, args.ordinal, output="f32"), FED_BAR),
        ("bothends from a store, f32", lambda: ours(args.store, args.ordinal, output="f32"), FED_BAR),
        ("bothends from a store, u8, pin_memory", lambda: ours(args.store, args.ordinal, **pinned), None),
        ("bothends from a store, f32, pin_memory", lambda: ours(args.store, args.ordinal, output="f32", **pinned), None),
        ("two workers from a store", lambda: ours(args.store, args.ordinal, workers=2), None),
        ("two workers and the GPU from a store", lambda: ours(args.store, args.ordinal, **gpu), PRONG_BAR),
        ("two workers and the GPU from files", lambda: ours(args.data, args.ordinal, **gpu), PRONG_BAR),
        ("PyTorch's DataLoader", lambda: theirs(args.data), None),
        ("torchvision with nvJPEG", lambda: nvjpeg(args.data, device), None),
    ]
    feeds = [feed for feed in feeds if not args.only or any(text in feed[0] for text in args.only)]
    for depth, n_steps in [(50, 120), (18, 240)]:
        if args.depth and depth not in args.depth:
            continue
        n_warm, n = (5, 10) if args.quick else (30, n_steps)
        trainer = Trainer(depth, device)
        name = f"ResNet-{depth}"
        best = trainer.rate(synthetic(device), n_warm, n)
        tell(f"{name}: synthetic data", best, "images/s")
        for what, feed, bar in feeds:
            # The bar of the prong is ResNet-50's.
            if bar == PRONG_BAR and depth != 50:
                bar = None
            batches = feed()
            try:
                rate = trainer.rate(batches, n_warm, n)
            except (ImportError, RuntimeError) as error:
                line = {"check": f"{name}: {what}", "skipped": str(error)}
                if "bothends" in what or "workers" in what:
                    line = {"check": line["check"], "value": False, "passed": False, "detail": str(error)}
                print(json.dumps(line), flush=True)
                continue
            finally:
                batches.close()
            tell(f"{name}: {what}", rate, "images/s")
            tell(f"{name}: {what} ÷ synthetic data", rate / best, "", bar)
            if depth == 50 and "bothends" in what and "pin_memory" not in what:
                Calls.tell(what)


def tell(
    check: str, value: float, unit: str, bar: float | None = None, most: float | None = None
) -> None:
    passed, said = None, None
    if bar is not None:
        passed, said = value >= bar, f"≥ {bar:g}"
    elif most is not None:
        passed, said = value <= most, f"≤ {most:g}"
    line = {"check": check, "value": value, "unit": unit, "bar": said, "passed": passed}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
