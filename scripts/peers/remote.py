"""One client reads remote records, some epochs long, and prints what it took, as one line of JSON.

    remote.py CLIENT PLAN.json

For scripts/measure-remote, which writes the plan and runs this at the near end of a link. The plan has: `endpoint`,
`bucket`, `records` (the keys), `tar` and `mds` (keys), `epochs`, `batch`, `in_flight`, `workers`, and `work` (`raw`, or
`imagenet-train`: decode, RandomResizedCrop(224), flip). Clients:

    fsspec          PyTorch's DataLoader; each worker fetches its batch by s3fs, in_flight requests in all
    boto3           PyTorch's DataLoader; each worker has threads with boto3, in_flight in all
    webdataset      WebDataset over HTTP, shards in shuffled order, shuffle buffer, DataLoader
    streaming       MosaicML Streaming, S3 to an empty local cache; one epoch, for the next would read the cache
                    (a second data set with a cache of its own, in the same process, fails in decoding)

Connections stay open from epoch to epoch where the client lets them; the first epoch is the warm-up.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from usage import cpu_seconds  # noqa: E402


class Epoch:
    """What one epoch took. Call `batch` for each batch that arrives."""

    def __init__(self):
        self.begin, self.first, self.last = time.perf_counter(), None, None
        self.cpu = cpu_seconds()
        self.samples = self.bytes = 0
        self.longest_gap = 0.0

    def batch(self, n_samples, n_bytes):
        now = time.perf_counter()
        if self.first is None:
            self.first = now - self.begin
        else:
            self.longest_gap = max(self.longest_gap, now - self.last)
        self.last = now
        self.samples += n_samples
        self.bytes += n_bytes

    def told(self):
        seconds = time.perf_counter() - self.begin
        return {"samples": self.samples, "bytes": self.bytes, "seconds": seconds,
                "samples_per_s": self.samples / seconds, "first_batch_s": self.first,
                "longest_gap_s": self.longest_gap,
                "cpu_ms_per_sample": (cpu_seconds() - self.cpu) * 1000 / max(self.samples, 1)}


# ---- what people use ---------------------------------------------------------------------------


def transform(plan):
    """Bytes to what is delivered; for raw the bytes' number."""
    if plan["work"] == "raw":
        return lambda data: data
    import io

    from PIL import Image
    from torchvision.transforms import v2

    augment = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.PILToTensor()])
    return lambda data: augment(Image.open(io.BytesIO(data)).convert("RGB"))


def size(item):
    return len(item) if isinstance(item, (bytes, bytearray)) else item.numel()


class Remote:
    """A map-style data set whose batches are fetched at once (`__getitems__`)."""

    def __init__(self, plan, fetch):
        self.plan, self.fetch, self.client, self.transform = plan, fetch, None, None

    def __len__(self):
        return len(self.plan["records"])

    def __getitems__(self, indices):
        if self.client is None:
            self.client = self.fetch(self.plan)
            self.transform = transform(self.plan)
        keys = [self.plan["records"][index] for index in indices]
        return [self.transform(data) for data in self.client(keys)]


def by_fsspec(plan):
    import s3fs

    share = max(1, plan["in_flight"] // max(plan["workers"], 1))
    store = s3fs.S3FileSystem(
        anon=True, endpoint_url=plan["endpoint"], config_kwargs={"max_pool_connections": share},
        skip_instance_cache=True)
    bucket = plan["bucket"]

    def fetch(keys):
        found = store.cat([f"{bucket}/{key}" for key in keys], batch_size=share)
        return [found[f"{bucket}/{key}"] for key in keys]
    return fetch


def by_boto3(plan):
    from concurrent.futures import ThreadPoolExecutor

    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    share = max(1, plan["in_flight"] // max(plan["workers"], 1))
    client = boto3.client(
        "s3", endpoint_url=plan["endpoint"],
        config=Config(signature_version=UNSIGNED, max_pool_connections=share))
    threads = ThreadPoolExecutor(share)

    def get(key):
        return client.get_object(Bucket=plan["bucket"], Key=key)["Body"].read()
    return lambda keys: list(threads.map(get, keys))


class DataLoader:
    """PyTorch's, over Remote; workers stay from epoch to epoch, and so do their connections."""

    def __init__(self, plan, fetch):
        import torch.utils.data as data

        self.plan = plan
        self.loader = data.DataLoader(
            Remote(plan, fetch), batch_size=plan["batch"], shuffle=True, num_workers=plan["workers"],
            collate_fn=list, persistent_workers=True, prefetch_factor=4,
            multiprocessing_context="spawn")

    def epoch(self, epoch, _number):
        for batch in self.loader:
            epoch.batch(len(batch), sum(map(size, batch)))


class Webdataset:
    def __init__(self, plan):
        import torch.utils.data as data
        import webdataset

        urls = [f"{plan['endpoint']}/{plan['bucket']}/{key}" for key in plan["tar"]]
        shards = webdataset.WebDataset(
            urls, shardshuffle=len(urls), nodesplitter=webdataset.split_by_node,
            workersplitter=webdataset.split_by_worker, empty_check=False)
        samples = shards.shuffle(256).to_tuple("jpg").map_tuple(transform(plan))
        self.loader = data.DataLoader(
            samples, batch_size=plan["batch"], num_workers=min(plan["workers"], len(urls)),
            collate_fn=list, persistent_workers=True, prefetch_factor=4)

    def epoch(self, epoch, _number):
        for batch in self.loader:
            epoch.batch(len(batch), sum(size(item) for item, in batch))


class Streaming:
    """Begins with an empty cache: what counts here is reading over the link."""

    EPOCHS = 1

    def __init__(self, plan):
        from streaming import StreamingDataset
        from streaming.base.util import clean_stale_shared_memory
        import torch.utils.data as data

        os.environ["S3_ENDPOINT_URL"] = plan["endpoint"]
        clean_stale_shared_memory()
        self.cache = tempfile.mkdtemp()
        samples = StreamingDataset(
            remote=f"s3://{plan['bucket']}/{plan['mds']}", local=self.cache, shuffle=True,
            batch_size=plan["batch"], predownload=8 * plan["batch"])
        make = transform(plan)
        self.loader = data.DataLoader(
            samples, batch_size=plan["batch"], num_workers=plan["workers"],
            collate_fn=lambda rows: [make(row["jpeg"]) for row in rows], prefetch_factor=4)

    def epoch(self, epoch, _number):
        try:
            for batch in self.loader:
                epoch.batch(len(batch), sum(map(size, batch)))
        finally:
            shutil.rmtree(self.cache, ignore_errors=True)


CLIENTS = {
    "fsspec": lambda plan: DataLoader(plan, by_fsspec),
    "boto3": lambda plan: DataLoader(plan, by_boto3),
    "webdataset": Webdataset,
    "streaming": Streaming,
}


def main():
    name, plan = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    client = CLIENTS[name](plan)
    epochs = []
    for number in range(getattr(client, "EPOCHS", plan["epochs"])):
        epoch = Epoch()
        client.epoch(epoch, number)
        epochs.append(epoch.told())
    print(json.dumps({"client": name, "epochs": epochs}), flush=True)
    # Workers and threads that hang at the end are not what is measured.
    os._exit(0)


if __name__ == "__main__":
    main()
