"""Trains one small network on samples that other programs write, and tests it.

    train.py JOB.json

Prints one JSON object. JOB.json holds:

  train          the command whose output is trained on; see samples_of_epochs for the format
  tests          name: command, for every set of test samples
  side           rows and columns of a sample
  classes        how many labels there are
  n_train        samples that `train` writes; n_test: that each of `tests` writes
  batch, rate    samples in a step; the highest learning rate
  seed           of the first weights
  begin_at       initial weights, except for the head, or null
  save_to        where to leave the weights, or null

The network is a residual one with group normalisation: pixels in blocks of 2 x 2, 32 channels,
then two blocks that halve the sides and double the channels, and a mean over all places, so
that it takes images of any size. SGD with Nesterov's momentum; the rate rises over a fifth of
the steps and falls to zero over the others. On one thread the result is always the same.
"""

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

WIDTHS = (32, 64, 128)
GROUPS = 8
MOMENTUM, DECAY, LONGEST_STEP = 0.9, 5e-4, 1.0
WARM = 0.2
TEST_BATCH = 250
MEAN, STD = np.array([0.4914, 0.4822, 0.4465]), np.array([0.247, 0.2435, 0.2616])


def first_weights(seed, n_classes):
    keys = iter(jax.random.split(jax.random.key(seed), 16))

    def filters(size, n_in, n_out):
        scale = np.sqrt(2 / (size * size * n_in))
        return scale * jax.random.normal(next(keys), (size, size, n_in, n_out))

    weights = {"stem": filters(3, 12, WIDTHS[0]), "stem_bias": jnp.zeros(WIDTHS[0])}
    for i, (n_in, n_out) in enumerate(zip(WIDTHS, WIDTHS[1:])):
        weights |= {
            f"first{i}": filters(3, n_in, n_out),
            f"second{i}": filters(3, n_out, n_out),
            f"past{i}": filters(1, n_in, n_out),
            f"bias{i}": jnp.zeros(n_out),
            f"gain{i}": jnp.full(n_out, 0.5),
        }
    head = {"head": jnp.zeros((WIDTHS[-1], n_classes)), "head_bias": jnp.zeros(n_classes)}
    return weights | head


def convolved(x, filters, stride=1):
    form = ("NHWC", "HWIO", "NHWC")
    strides = (stride, stride)
    return jax.lax.conv_general_dilated(x, filters, strides, "SAME", dimension_numbers=form)


def normalised(x):
    n, rows, columns, channels = x.shape
    parts = x.reshape(n, rows * columns, GROUPS, channels // GROUPS)
    mean = parts.mean((1, 3), keepdims=True)
    variance = (parts * parts).mean((1, 3), keepdims=True) - mean * mean
    return ((parts - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape)


def scores(weights, pixels):
    n, rows, columns, _ = pixels.shape
    x = (pixels.astype(jnp.float32) / 255 - MEAN) / STD
    x = x.reshape(n, rows // 2, 2, columns // 2, 2, 3).transpose(0, 1, 3, 2, 4, 5)
    x = x.reshape(n, rows // 2, columns // 2, 12)
    x = jax.nn.relu(convolved(x, weights["stem"]) + weights["stem_bias"])
    for i in range(len(WIDTHS) - 1):
        y = jax.nn.relu(normalised(convolved(x, weights[f"first{i}"], 2)))
        y = normalised(convolved(y, weights[f"second{i}"])) * weights[f"gain{i}"]
        past = convolved(x, weights[f"past{i}"], 2)
        x = jax.nn.relu(y + past + weights[f"bias{i}"])
    return x.mean((1, 2)) @ weights["head"] + weights["head_bias"]


def loss(weights, pixels, labels):
    logs = jax.nn.log_softmax(scores(weights, pixels))
    return -jnp.take_along_axis(logs, labels[:, None], 1).mean()


@partial(jax.jit, donate_argnums=(0, 1))
def stepped(weights, moments, pixels, labels, rate):
    value, slopes = jax.value_and_grad(loss)(weights, pixels, labels)
    length = jnp.sqrt(sum((slope * slope).sum() for slope in jax.tree.leaves(slopes)))
    shrink = jnp.minimum(1, LONGEST_STEP / length)
    slopes = jax.tree.map(lambda slope, w: slope * shrink + DECAY * w, slopes, weights)
    moments = jax.tree.map(lambda m, slope: MOMENTUM * m + slope, moments, slopes)
    weights = jax.tree.map(
        lambda w, slope, m: w - rate * (slope + MOMENTUM * m), weights, slopes, moments
    )
    return weights, moments, value


answers = jax.jit(lambda weights, pixels: scores(weights, pixels).argmax(-1))


def batches(command, job, n_samples, size):
    """What a command writes, in batches of labels and pixels; a last part is left out."""
    side = job["side"]
    sample = np.dtype([("label", "<i8"), ("pixels", "u1", (side, side, 3))])
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        for _ in range(n_samples // size):
            read = program.stdout.read(size * sample.itemsize)
            if len(read) < size * sample.itemsize:
                sys.exit(f"error: {command[0]} wrote fewer than {n_samples} samples")
            batch = np.frombuffer(read, sample)
            yield np.ascontiguousarray(batch["label"]), np.ascontiguousarray(batch["pixels"])
        program.stdout.read()
    if program.returncode:
        sys.exit(f"error: {' '.join(command)} ended with {program.returncode}")


def trained(job):
    """The weights after all steps, and the mean loss of the last tenth of them."""
    weights = first_weights(job["seed"], job["classes"])
    if job["begin_at"]:
        kept = np.load(job["begin_at"])
        weights |= {k: jnp.asarray(kept[k]) for k in weights if not k.startswith("head")}
    moments = jax.tree.map(jnp.zeros_like, weights)
    n_steps = job["n_train"] // job["batch"]
    losses = []
    for labels, pixels in batches(job["train"], job, job["n_train"], job["batch"]):
        done = len(losses) / n_steps
        rate = job["rate"] * min(done / WARM, (1 - done) / (1 - WARM))
        weights, moments, value = stepped(weights, moments, pixels, labels, rate)
        losses.append(value)
    return weights, float(jnp.stack(losses[-max(1, n_steps // 10):]).mean())


def main():
    began = time.monotonic()
    job = json.loads(Path(sys.argv[1]).read_text())
    weights, last_loss = trained(job)
    if job["save_to"]:
        np.savez(job["save_to"], **weights)
    given, labels, pixels = {}, {}, {}
    for name, command in job["tests"].items():
        parts = list(batches(command, job, job["n_test"], TEST_BATCH))
        labels[name], pixels[name] = (np.concatenate(part) for part in zip(*parts))
        given[name] = np.concatenate([np.asarray(answers(weights, part)) for _, part in parts])
    one, other = job["tests"]
    if not np.array_equal(labels[one], labels[other]):
        sys.exit("error: the test samples are not the same")
    error = pixels[one].astype(np.float32) - pixels[other]
    result = {
        "accuracy": {name: float((given[name] == labels[name]).mean()) for name in given},
        "other_answers": float((given[one] != given[other]).mean()),
        "test_psnr_db": float(10 * np.log10(255**2 / np.mean(error * error, dtype=np.float64))),
        "last_loss": last_loss,
        "seconds": time.monotonic() - began,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
