"""JAX with two processes: each loads its rows of a batch, and a step sees a global array."""

import json
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from torch.utils.data import DataLoader, DistributedSampler, Subset
from torchvision import datasets, transforms
import bothends  # bothends

import notes
import tiny


def arrays(samples):
    images, labels = zip(*samples, strict=True)
    return np.stack(images), np.array(labels)


def transform(*steps):
    normalize = transforms.Normalize(tiny.MEAN, tiny.STD)
    array = transforms.Lambda(lambda image: image.numpy())
    return transforms.Compose([*steps, transforms.ToTensor(), normalize, array])


def loaders(args):
    """PyTorch's, with NumPy's arrays."""
    train = datasets.ImageFolder(
        os.path.join(args.data, "train"),
        transform(transforms.RandomResizedCrop(tiny.SIZE), transforms.RandomHorizontalFlip()),
    )
    val = datasets.ImageFolder(
        os.path.join(args.data, "val"),
        transform(transforms.Resize(tiny.SIZE + 8), transforms.CenterCrop(tiny.SIZE)),
    )
    rank, world = jax.process_index(), jax.process_count()
    part = Subset(val, range(rank, len(val), world))
    of_both = {"batch_size": args.batch_size, "num_workers": args.workers, "collate_fn": arrays}
    sampler = DistributedSampler(train, world, rank)
    return DataLoader(train, sampler=sampler, drop_last=True, **of_both), DataLoader(
        part, **of_both
    )


def recipe(name, *ops):
    normalize = {"op": "normalize", "mean": tiny.MEAN, "std": tiny.STD}
    return {"version": 1, "name": name, "ops": [{"op": "decode"}, *ops, normalize]}


SQUARE = [tiny.SIZE, tiny.SIZE]
TRAIN = recipe(
    "train",
    {"op": "random_resized_crop", "size": SQUARE},
    {"op": "random_horizontal_flip", "p": 0.5},
)
VAL = recipe("val", {"op": "resize", "size": tiny.SIZE + 8}, {"op": "center_crop", "size": SQUARE})


def whole(batch, rows):
    """A batch of as many rows as all others, with a mask of those that count."""
    images, labels, *mask = batch
    if mask:
        return images, labels, mask[0]
    missing = rows - len(labels)
    images = np.pad(images, [(0, missing), (0, 0), (0, 0), (0, 0)])
    return images, np.pad(labels, (0, missing)), np.arange(rows) < len(labels)


def local(array):
    """The rows of this process."""
    if not isinstance(array, jax.Array):
        return np.asarray(array)
    return np.concatenate([np.asarray(shard.data) for shard in array.addressable_shards])


def shared(sharding, *arrays):
    """Global arrays, of which this process gives its rows."""
    return [
        array
        if isinstance(array, jax.Array) and len(array.sharding.device_set) > 1
        else jax.make_array_from_process_local_data(sharding, np.asarray(array))
        for array in arrays
    ]


@jax.jit
def losses(weights, images, labels, mask):
    """The sum over the samples that count, and how many they are."""
    coarse = images.reshape(len(images), 3, 8, tiny.SIZE // 8, 8, tiny.SIZE // 8).mean((3, 5))
    logits = coarse.reshape(len(images), -1) @ weights
    each = -jax.nn.log_softmax(logits)[jnp.arange(len(labels)), labels]
    return jnp.where(mask, each, 0).sum(), mask.sum()


def evaluate(weights, loader, sharding, epoch, args):
    loss_sum, n = 0.0, 0
    for batch in loader:
        images, labels, mask = whole(batch, args.batch_size)
        counts = local(mask)
        notes.evaluated(epoch, local(images)[counts], local(labels)[counts])
        # One row of all ranks; a label of a masked row is any.
        labels = jnp.maximum(labels, 0) if isinstance(labels, jax.Array) else labels
        found, rows = losses(weights, *shared(sharding, images, labels, mask))
        loss_sum, n = loss_sum + float(found), n + int(rows)
    notes.result(epoch, loss_sum / n, n)


def main():
    args = tiny.options(coordinator="", processes=1, process=0)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"],
        int(os.environ["MATRIX_RANKS"]),
        int(os.environ["MATRIX_RANK"]),
    )
    notes.rank = jax.process_index
    sharding = NamedSharding(Mesh(jax.devices(), "batch"), PartitionSpec("batch"))
    train, val = loaders(args)
    of_both = {"batch_size": args.batch_size, "framework": "jax", "sharding": sharding}  # bothends
    train = bothends.Loader(f"{args.data}/train", TRAIN, **of_both)  # bothends
    val = bothends.Loader(f"{args.data}/val", VAL, shuffle=False, last="pad", **of_both)  # bothends
    weights = jax.random.normal(jax.random.key(1), (192, 83)) / 14
    gradient = jax.jit(jax.value_and_grad(lambda *step: losses(*step)[0]))
    start = step = 0
    if args.resume:
        with open(args.checkpoint, encoding="utf-8") as file:
            checkpoint = json.load(file)
        start, step = checkpoint["epoch"], checkpoint["step"]
        train.load_state_dict(checkpoint["loader"])  # bothends: resume
    for epoch in range(start, args.epochs):
        if hasattr(train.sampler, "set_epoch"):
            train.sampler.set_epoch(epoch)
        for images, labels in train:
            notes.trained(epoch, local(images), local(labels))
            batch = shared(sharding, images, labels, np.ones(args.batch_size, bool))
            loss, slope = gradient(weights, *batch)
            weights = weights - args.lr * slope
            step += 1
            if step % args.save_every == 0:
                checkpoint = {"epoch": epoch, "step": step}
                checkpoint["loader"] = train.state_dict()  # bothends: resume
                if jax.process_index() == 0:
                    with open(args.checkpoint, "w", encoding="utf-8") as file:
                        json.dump(checkpoint, file)
                notes.saved()
        evaluate(weights, val, sharding, epoch, args)
    notes.loaders(train=train, evaluate=val)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
