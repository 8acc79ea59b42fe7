"""Lightning and Accelerate, the real packages, with a `Loader` as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import bothends

from streams import loader

N_BATCHES = 5


def made(data: Path, **options: Any) -> bothends.Loader:
    return loader(data, output="f32", framework="torch", **options)


# ---- Lightning ----------------------------------------------------------------------------


def module(lightning: Any, stop_after: int | None = None) -> Any:
    """A tiny model that notes every batch it is given."""

    class Tiny(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(32 * 32 * 3, 5)
            self.seen: list[tuple[int, Any]] = []

        def training_step(self, batch: Any, index: int) -> Any:
            images, labels = batch
            self.seen.append((self.current_epoch, images.clone()))
            loss = torch.nn.functional.cross_entropy(self.layer(images.flatten(1)), labels)
            if stop_after is not None and len(self.seen) == stop_after:
                self.trainer.should_stop = True
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 1e-3)

    return Tiny()


def trainer(lightning: Any, folder: Path, **options: Any) -> Any:
    return lightning.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        use_distributed_sampler=True,
        **options,
    )


def epochs(data: Path, n: int) -> list[Any]:
    batches = made(data)
    return [images.clone() for _ in range(n) for images, _ in batches]


@pytest.fixture
def lightning(monkeypatch: pytest.MonkeyPatch) -> Any:
    for variable in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(variable, raising=False)
    return pytest.importorskip("lightning.pytorch", reason="lightning is not installed")


def test_lightning_trains_two_epochs(small: Path, tmp_path: Path, lightning: Any) -> None:
    model, batches = module(lightning), made(small)
    run = trainer(lightning, tmp_path, max_epochs=2, enable_checkpointing=False)
    run.fit(model, batches)
    assert run.num_training_batches == N_BATCHES
    assert [epoch for epoch, _ in model.seen] == [0] * N_BATCHES + [1] * N_BATCHES
    expected = epochs(small, 2)
    pairs = zip(model.seen, expected, strict=True)
    assert all(torch.equal(seen, images) for (_, seen), images in pairs)


@pytest.mark.parametrize("after", [2, N_BATCHES + 3])
def test_lightning_resumes_in_the_middle_of_an_epoch(
    small: Path, tmp_path: Path, lightning: Any, after: int
) -> None:
    from lightning.fabric.utilities.types import _Stateful

    first, batches = module(lightning), made(small)
    assert isinstance(batches, _Stateful)
    checkpoint = lightning.callbacks.ModelCheckpoint(tmp_path, save_top_k=-1, every_n_train_steps=1)
    options = {"max_epochs": 3}
    run = trainer(lightning, tmp_path, max_steps=after, callbacks=[checkpoint], **options)
    run.fit(first, batches)
    assert len(first.seen) == after
    (saved,) = tmp_path.glob(f"*step={after}.ckpt")
    second = module(lightning)
    run = trainer(lightning, tmp_path, enable_checkpointing=False, **options)
    run.fit(second, made(small, workers=1), ckpt_path=saved)
    expected = epochs(small, 3)
    seen = [images for _, images in first.seen + second.seen]
    assert len(seen) == len(expected) == 3 * N_BATCHES
    assert all(torch.equal(a, b) for a, b in zip(seen, expected, strict=True))


def test_lightning_sets_the_epoch(small: Path, lightning: Any) -> None:
    from lightning.fabric.utilities.data import _set_sampler_epoch

    batches = made(small)
    _set_sampler_epoch(batches, 7)
    assert batches.epoch == 7


# ---- Accelerate ---------------------------------------------------------------------------


def test_accelerate_leaves_it_as_it_is(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(32 * 32 * 3, 5)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    batches = made(small)
    model, optimizer, same = accelerator.prepare(model, optimizer, batches)
    assert same is batches
    before = [p.detach().clone() for p in model.parameters()]
    seen = []
    for epoch in range(2):
        same.set_epoch(epoch)
        for images, labels in same:
            seen.append(images.clone())
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images.flatten(1)), labels)
            accelerator.backward(loss)
            optimizer.step()
    expected = epochs(small, 2)
    assert all(torch.equal(a, b) for a, b in zip(seen, expected, strict=True))
    after = list(model.parameters())
    assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))


# ---- PyTorch's own loader round ours ------------------------------------------------------


def test_pytorchs_loader_may_hold_it(small: Path) -> None:
    class Whole(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Any:
            return iter(batches)

    batches = made(small)
    outer = torch.utils.data.DataLoader(Whole(), batch_size=None, num_workers=0)
    seen = [images.clone() for images, _ in outer]
    assert all(torch.equal(a, b) for a, b in zip(seen, epochs(small, 1), strict=True))
