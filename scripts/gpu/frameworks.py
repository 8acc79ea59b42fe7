#!/usr/bin/env python3
"""Whether PyTorch, JAX and CuPy see the right bytes on a GPU: for `scripts/check-gpu`.

    frameworks.py --data FOLDER --store STORE [--ordinal N]

Every batch of an epoch, as a framework has it on the GPU, is compared with the one that ends in the host's memory: on the
current stream, on one of the script's own that is kept busy, pinned and copied by the script, and with the GPU as a prong.
One JSON object a line. PyTorch is needed, for bytes; frameworks that are not there, or have no GPU, are skipped.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy

import bothends

COMMON = {"batch_size": 64, "repeat": 4, "seed": 3, "last": "drop", "on_bad": "zero"}
RECIPES = (
    "imagenet-eval torchvision-resnet50-v1 torchvision-resnet50-v2 timm-a1 timm-a2 timm-a3 deit dino"
).split()
OUTPUTS = [("u8", "nhwc"), ("f32", "nchw"), ("f16", "nchw"), ("bf16", "nhwc")]


def tell(check: str, n_wrong: int, n: int, more: str = "") -> None:
    detail = f"{n_wrong} of {n} batches differ{more}"
    line = {"check": check, "value": n_wrong == 0, "passed": n > 0 and n_wrong == 0, "detail": detail}
    print(json.dumps(line), flush=True)


def skip(check: str, why: str) -> None:
    print(json.dumps({"check": check, "skipped": why}), flush=True)


def bits(array) -> bytes:
    return numpy.ascontiguousarray(array).tobytes()


class Compared:
    """Epochs on the host, by output, and what is compared with them."""

    def __init__(self, data: Path, ordinal: int) -> None:
        self.data, self.device = data, f"cuda:{ordinal}"
        self.hosts: dict[tuple[str, str], list[tuple[bytes, bytes]]] = {}

    def host(self, output: str, layout: str) -> list[tuple[bytes, bytes]]:
        key = (output, layout)
        if key not in self.hosts:
            batches = self.batches(output=output, layout=layout, framework="dlpack")
            self.hosts[key] = [(raw(images), raw(labels)) for images, labels in batches]
        return self.hosts[key]

    def batches(self, recipe: str = "imagenet-train", **options):
        return bothends.Loader(self.data, recipe, **COMMON, **options)

    def compare(self, check: str, output: str, layout: str, got) -> None:
        """`got` yields images and labels as bytes."""
        need = self.host(output, layout)
        n, n_wrong = 0, 0
        for (images, labels), (their_images, their_labels) in zip(got, need, strict=True):
            n += 1
            n_wrong += images != their_images or labels != their_labels
        tell(f"{check}, {output} {layout}", n_wrong, n)


def raw(tensor) -> bytes:
    """Bytes of a tensor in the host's memory."""
    import torch

    return of_torch(torch.from_dlpack(tensor))


def of_torch(tensor) -> bytes:
    import torch

    return bits(tensor.contiguous().cpu().view(torch.uint8).numpy())


def pytorch(compared: Compared) -> None:
    import torch

    torch.cuda.set_device(compared.device)
    for output, layout in OUTPUTS:
        made = compared.batches(output=output, layout=layout, device=compared.device)
        got = ((of_torch(images), of_torch(labels)) for images, labels in made)
        compared.compare("PyTorch", output, layout, got)
    compared.compare("PyTorch on a busy stream", "f32", "nchw", busy(compared, torch))
    made = compared.batches(output="u8", layout="nhwc", pin_memory=True)
    compared.compare("PyTorch copies pinned batches", "u8", "nhwc", copied(made, torch))
    made = compared.batches(
        output="f32", layout="nchw", device=compared.device, csds=[compared.device], require_devices=True
    )
    got = ((of_torch(images), of_torch(labels)) for images, labels in made)
    compared.compare("PyTorch, with the GPU as a prong", "f32", "nchw", got)
    print(json.dumps({"check": "path", "value": True, "passed": True, "detail": made.stats()["path"]}))


def busy(compared: Compared, torch):
    """A stream of the script's own on which every batch is read late, long after its tensors are gone."""
    stream, load = torch.cuda.Stream(), torch.randn(4096, 4096, device=compared.device)
    made = compared.batches(output="f32", layout="nchw", device=compared.device)
    with torch.cuda.stream(stream):
        kept = []
        for images, labels in made:
            for _ in range(20):
                load = (load @ load).clamp(-1, 1)
            kept.append((images.clone(), labels.clone()))
            del images, labels
    torch.cuda.synchronize()
    return ((of_torch(images), of_torch(labels)) for images, labels in kept)


def copied(made, torch):
    """Copies that nobody waits for, of memory that is let go of at once."""
    kept, n_pinned = [], 0
    for images, labels in made:
        n_pinned += images.is_pinned()
        kept.append((images.to("cuda", non_blocking=True), labels.to("cuda", non_blocking=True)))
        del images, labels
    torch.cuda.synchronize()
    # A script that runs further ahead of the GPU than slots last gets plain copies.
    if n_pinned == 0:
        raise AssertionError("no batch is pinned")
    return ((of_torch(images), of_torch(labels)) for images, labels in kept)


def recipes(compared: Compared) -> None:
    """Mixing, erasing, policies and several views; what has no kernel is the host's."""
    for name in RECIPES:
        for output in ("f32", "bf16"):
            common = {"recipe": name, "output": output, "limit": 64}
            here = compared.batches(framework="dlpack", **common)
            there = compared.batches(device=compared.device, **common)
            n = n_wrong = 0
            for host, gpu in zip(here, there, strict=True):
                n += 1
                pairs = zip(flat(host), flat(gpu), strict=True)
                n_wrong += any(raw(ours) != of_torch(theirs) for ours, theirs in pairs)
            tell(f"recipe {name}, {output}", n_wrong, n)


def flat(value) -> list:
    """The tensors of a batch, of however many views."""
    return [tensor for part in value for tensor in flat(part)] if isinstance(value, (tuple, list)) else [value]


def jax(compared: Compared) -> None:
    import jax

    try:
        jax.devices("gpu")
    except RuntimeError as error:
        raise ImportError(f"JAX has no GPU: {error}") from error
    for output, layout in OUTPUTS:
        made = compared.batches(output=output, layout=layout, device=compared.device, framework="jax")
        # A computation first: JAX runs it on a stream of its own.
        got = ((bits(images + 0), bits(labels + 0)) for images, labels in made)
        compared.compare("JAX", output, layout, narrow(got, compared, output, layout))


def narrow(got, compared: Compared, output: str, layout: str):
    """JAX has labels of 32 bits unless it is told otherwise."""
    for (images, labels), (_, need) in zip(got, compared.host(output, layout), strict=True):
        if len(labels) * 2 == len(need):
            labels = bits(numpy.frombuffer(labels, numpy.int32).astype(numpy.int64))
        yield images, labels


def cupy(compared: Compared) -> None:
    import cupy

    try:
        cupy.zeros(1)
    except Exception as error:
        raise ImportError(f"CuPy has no GPU: {error}") from error
    for output, layout in OUTPUTS[:3]:
        made = compared.batches(output=output, layout=layout, device=compared.device, framework="cupy")
        got = ((bits(cupy.asnumpy(images)), bits(cupy.asnumpy(labels))) for images, labels in made)
        compared.compare("CuPy", output, layout, got)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--ordinal", type=int, default=0)
    args = parser.parse_args()
    compared = Compared(args.store, args.ordinal)
    for framework in (pytorch, recipes, cupy, jax):
        began = time.monotonic()
        try:
            framework(compared)
        except ImportError as missing:
            skip(framework.__name__, str(missing))
        except Exception as error:  # noqa: BLE001 - the others are to be looked at all the same
            tell(f"{framework.__name__} runs to its end", 1, 1, f": {type(error).__name__}: {error}")
        print(f"{framework.__name__}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
