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


@pytest.mark.parametrize("after", [2, N_BATCHES, N_BATCHES + 3, 2 * N_BATCHES])
def test_lightning_resumes_after_any_batch(
    small: Path, tmp_path: Path, lightning: Any, after: int
) -> None:
    """Symptom: an epoch is lost, as a state from after an epoch's last batch has none left and
    Lightning, which counts batches, is already in the next epoch."""
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


class Round:
    """A loader of a script's own, round one of ours."""

    def __init__(self, loader: bothends.Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Any:
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state)


def test_lightning_resumes_a_loader_round_ours(small: Path, tmp_path: Path, lightning: Any) -> None:
    """Symptom: as above, since a script's own code calls our `load_state_dict`."""
    first, second = module(lightning), module(lightning)
    checkpoint = lightning.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=1)
    run = trainer(lightning, tmp_path, max_steps=N_BATCHES, callbacks=[checkpoint])
    run.fit(first, Round(made(small)))
    run = trainer(lightning, tmp_path, enable_checkpointing=False, max_epochs=2)
    run.fit(second, Round(made(small)), ckpt_path=checkpoint.best_model_path)
    assert [epoch for epoch, _ in second.seen] == [1] * N_BATCHES


@pytest.mark.parametrize("of", ["Loader", "DataLoader"])
def test_a_script_loads_a_state_in_a_hook_of_lightning(
    small: Path, tmp_path: Path, lightning: Any, of: str
) -> None:
    """Symptom: the script's own call is taken for Lightning's, and its loop gets the next epoch
    instead of the end of this one."""

    def made_here() -> Any:
        return made(small) if of == "Loader" else of_torch(small, seed=3)

    saved = made_here()
    batches = iter(saved)
    for _ in range(N_BATCHES):
        next(batches)
    state = saved.state_dict()
    lengths = []

    class Tiny(type(module(lightning))):  # type: ignore[misc]
        def on_fit_start(self) -> None:
            resumed = made_here()
            resumed.load_state_dict(state)
            lengths.extend([len(list(resumed)), len(list(resumed))])

    run = trainer(lightning, tmp_path, max_steps=1, enable_checkpointing=False)
    run.fit(Tiny(), made(small))
    assert lengths == [0, N_BATCHES]


@pytest.mark.parametrize("of", ["Loader", "DataLoader"])
def test_lightning_resumes_between_epochs_as_documented(
    small: Path, tmp_path: Path, lightning: Any, of: str
) -> None:
    """Lightning does not load the states of loaders from its checkpoint after an epoch."""

    class Tiny(type(module(lightning))):  # type: ignore[misc]
        def train_dataloader(self) -> Any:
            loader = made(small) if of == "Loader" else of_torch(small, seed=3)
            loader.set_epoch(self.trainer.fit_loop.epoch_progress.current.processed)
            return loader

    first, second = Tiny(), Tiny()
    first.layer = second.layer = torch.nn.Linear(32 * 32 * 3, 23)
    checkpoint = lightning.callbacks.ModelCheckpoint(tmp_path)
    trainer(lightning, tmp_path, max_epochs=2, callbacks=[checkpoint]).fit(first)
    run = trainer(lightning, tmp_path, enable_checkpointing=False, max_epochs=4)
    run.fit(second, ckpt_path=checkpoint.best_model_path)
    steady = made(small) if of == "Loader" else of_torch(small, seed=3)
    expected = [images.clone() for _ in range(4) for images, _ in steady]
    seen = [images for _, images in first.seen + second.seen]
    assert all(torch.equal(a, b) for a, b in zip(seen, expected, strict=True))


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


# ---- `bothends.torch.DataLoader` instead of PyTorch's -------------------------------------


def of_torch(data: Path, **options: Any) -> Any:
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    from loaders import TRAIN, numbered, ours

    return ours(numbered(data, TRAIN), **{"shuffle": True, "batch_size": 5, **options})


def notes(lightning: Any) -> Any:
    """A model whose steps are noted, in their epoch."""
    model = module(lightning)
    model.layer = torch.nn.Linear(32 * 32 * 3, 23)
    return model


def test_lightning_trains_with_a_torch_loader(
    small: Path, tmp_path: Path, lightning: Any
) -> None:
    """Symptom: Lightning makes another loader of it, or its epochs repeat."""
    model, batches = notes(lightning), of_torch(small, seed=3)
    run = trainer(lightning, tmp_path, max_epochs=2, enable_checkpointing=False)
    run.fit(model, batches)
    steady = of_torch(small, seed=3)
    expected = [images.clone() for _ in range(2) for images, _ in steady]
    assert [epoch for epoch, _ in model.seen] == [0] * 5 + [1] * 5
    pairs = zip(model.seen, expected, strict=True)
    assert all(torch.equal(seen, images) for (_, seen), images in pairs)
    # Lightning counts batches and never asks for an epoch's end; the next one's beginning is it.
    assert batches.stats()["front_batches"] == 10 and batches.stats()["epoch"] == 1


# Lightning takes an epoch for done whose last batch it has seen (5), and never asks for its end.
@pytest.mark.parametrize("after", [2, 5, 8, 10])
def test_lightning_resumes_an_unseeded_script(
    small: Path, tmp_path: Path, lightning: Any, after: int
) -> None:
    """Symptom: StateError seed ... where a script that seeds nothing resumes in mid-epoch."""
    first, batches = notes(lightning), of_torch(small)
    checkpoint = lightning.callbacks.ModelCheckpoint(tmp_path, save_top_k=-1, every_n_train_steps=1)
    options = {"max_epochs": 3}
    run = trainer(lightning, tmp_path, max_steps=after, callbacks=[checkpoint], **options)
    run.fit(first, batches)
    seed = batches.state_dict()["seed"]
    (saved,) = tmp_path.glob(f"*step={after}.ckpt")
    second = notes(lightning)
    run = trainer(lightning, tmp_path, enable_checkpointing=False, **options)
    run.fit(second, of_torch(small, num_workers=1), ckpt_path=saved)
    steady = of_torch(small, seed=seed)
    expected = [images.clone() for _ in range(3) for images, _ in steady]
    seen = [images for _, images in first.seen + second.seen]
    assert len(seen) == 15
    assert all(torch.equal(a, b) for a, b in zip(seen, expected, strict=True))


LOADERS: dict[str, Any] = {
    "shuffled": lambda _: {"shuffle": True},
    "batches": lambda torch: {
        "batch_sampler": torch.utils.data.BatchSampler(range(23), 5, False),
        "batch_size": 1,
        "shuffle": None,
    },
}


@pytest.mark.parametrize("stops", [(2, 5), (3, 4, 5), (2, 5, 7, 10)])
@pytest.mark.parametrize("kind", LOADERS)
def test_lightning_resumes_again_and_again(
    small: Path, tmp_path: Path, lightning: Any, kind: str, stops: tuple[int, ...]
) -> None:
    """Symptom: an epoch is lost at the second resume, if the first was within an epoch."""
    seen: list[Any] = []
    saved = None
    for stop in (*stops, -1):
        model = notes(lightning)
        checkpoint = lightning.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=1)
        options = {"max_epochs": 3, "max_steps": stop, "callbacks": [checkpoint]}
        run = trainer(lightning, tmp_path, **options)
        run.fit(model, of_torch(small, seed=3, **LOADERS[kind](torch)), ckpt_path=saved)
        seen += model.seen
        saved = checkpoint.best_model_path
    steady = of_torch(small, seed=3, **LOADERS[kind](torch))
    expected = [(epoch, images.clone()) for epoch in range(3) for images, _ in steady]
    assert [epoch for epoch, _ in seen] == [epoch for epoch, _ in expected]
    pairs = zip(seen, expected, strict=True)
    assert all(torch.equal(images, other) for (_, images), (_, other) in pairs)


def test_accelerate_keeps_a_torch_loader_ours(small: Path) -> None:
    """Symptom: what Accelerate makes of it is PyTorch's loader, and nothing is faster."""
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    batches = of_torch(small)
    prepared = accelerate.Accelerator(cpu=True).prepare(batches)
    epochs = [[labels.tolist() for _, labels in prepared] for _ in range(2)]
    assert all(sorted(sum(epoch, [])) == list(range(23)) for epoch in epochs)
    assert epochs[0] != epochs[1] and len(prepared) == 5
    assert prepared.base_dataloader.stats()["loader"] == "bothends"


class Numbered(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    """A data set that makes its own samples."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, i: int) -> Any:
        return torch.rand(2), i


def made_for_accelerate(small: Path, kind: str, *, is_prepared: bool = True) -> Any:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    from loaders import quiet

    options = {"shuffle": True, "batch_size": 5, "seed": 3}
    loader = of_torch(small, **options) if kind == "read" else quiet(Numbered(), **options)
    return accelerate.Accelerator(cpu=True).prepare(loader) if is_prepared else loader


@pytest.mark.parametrize("is_prepared", [True, False])
@pytest.mark.parametrize("kind", ["read", "own code"])
def test_skipping_batches_with_accelerate_repeats_no_epoch(
    small: Path, kind: str, is_prepared: bool
) -> None:
    """Symptom: after an epoch whose first batches were skipped, the same one comes again."""

    def stream(loader: Any) -> list[Any]:
        return [(images.clone(), labels.tolist()) for images, labels in loader]

    def same(one: list[Any], other: list[Any]) -> bool:
        pairs = zip(one, other, strict=True)
        return all(torch.equal(a, b) and m == n for (a, m), (b, n) in pairs)

    steady = made_for_accelerate(small, kind, is_prepared=is_prepared)
    from accelerate import skip_first_batches

    whole = [stream(steady) for _ in range(5)]
    loader = made_for_accelerate(small, kind, is_prepared=is_prepared)
    assert same(stream(loader), whole[0])
    first = stream(skip_first_batches(loader, 2))
    assert len(first) == 3
    if is_prepared:
        assert same(first, whole[1][2:])
    assert same(stream(loader), whole[2])
    # An epoch that is left early counts, too.
    batches = iter(skip_first_batches(loader, 1))
    next(batches)
    del batches
    assert same(stream(loader), whole[4])


@pytest.mark.parametrize("kind", ["read", "own code"])
def test_a_state_within_an_epoch_of_which_accelerate_skips_batches(small: Path, kind: str) -> None:
    """Symptom: the loader whose batches are skipped continues at another batch."""
    loader = made_for_accelerate(small, kind, is_prepared=False)
    from accelerate import skip_first_batches

    batches = iter(skip_first_batches(loader, 2))
    next(batches)
    state = loader.state_dict()
    rest = [labels.tolist() for _, labels in batches]
    other = made_for_accelerate(small, kind, is_prepared=False)
    with pytest.raises(bothends.StateError):
        other.load_state_dict(state)
    resumed = skip_first_batches(other, 2)
    resumed.load_state_dict(state)
    assert [labels.tolist() for _, labels in resumed] == rest and len(rest) == 2
    # The end of such an epoch is one for both.
    assert loader.state_dict()["epoch"] == 1
    other.load_state_dict(loader.state_dict())
    expected = [labels.tolist() for _, labels in loader]
    assert [labels.tolist() for _, labels in other] == expected


@pytest.mark.parametrize("kind", ["read", "own code"])
def test_skipping_batches_of_another_loader_counts_no_epoch(small: Path, kind: str) -> None:
    """Symptom: batches that are skipped for validation, of PyTorch's own loader over the same data
    set, move the loader for training to later epochs."""
    steady = made_for_accelerate(small, kind, is_prepared=False)
    from accelerate import skip_first_batches

    whole = [[labels.tolist() for _, labels in steady] for _ in range(2)]
    loader = made_for_accelerate(small, kind, is_prepared=False)
    assert [labels.tolist() for _, labels in loader] == whole[0]
    validation = torch.utils.data.DataLoader(loader.dataset, batch_size=5)
    for _ in range(2):
        assert len(list(skip_first_batches(validation, 1))) == 4
    assert [labels.tolist() for _, labels in loader] == whole[1]


@pytest.mark.parametrize("kind", ["read", "own code"])
def test_skipping_a_whole_resumed_epoch_leaves_nothing_of_it(small: Path, kind: str) -> None:
    """Symptom: what is left of the epoch of the state comes as the next one."""
    loader = made_for_accelerate(small, kind, is_prepared=False)
    from accelerate import skip_first_batches

    next(iter(loader))
    state = loader.state_dict()
    steady = made_for_accelerate(small, kind, is_prepared=False)
    whole = [[labels.tolist() for _, labels in steady] for _ in range(2)]
    other = made_for_accelerate(small, kind, is_prepared=False)
    other.load_state_dict(state)
    assert next(iter(skip_first_batches(other, 99)), None) is None
    assert other.state_dict()["epoch"] == 1
    assert [labels.tolist() for _, labels in other] == whole[1]


@pytest.mark.parametrize("options", [{}, {"split_batches": True}, {"even_batches": False}])
@pytest.mark.parametrize("shuffle", [False, True])
def test_accelerate_deals_it_to_two_processes(
    small: Path, shuffle: bool, options: dict[str, Any]
) -> None:
    """Symptom: Accelerate gives each process all of it: 60 labels gathered of 30 samples."""
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    from accelerate.data_loader import prepare_data_loader

    def of_both(make: Any) -> list[list[list[int]]]:
        seen = []
        for rank in range(2):
            # What the processes agree on as an epoch begins.
            torch.manual_seed(5)
            prepared = prepare_data_loader(
                make(rank), num_processes=2, process_index=rank, put_on_device=False, **options
            )
            base = getattr(prepared, "base_dataloader", prepared)
            seen.append([labels.tolist() for _, labels in base])
            assert isinstance(prepared, torch.utils.data.DataLoader)
            if hasattr(base, "stats"):
                assert base.stats()["loader"] == "bothends"
        return seen

    mine = of_both(lambda _: of_torch(small, batch_size=4, shuffle=shuffle, seed=1))
    if not shuffle:
        from loaders import EVAL, numbered

        plain = of_both(lambda _: torch.utils.data.DataLoader(numbered(small, EVAL), 4))
        assert mine == plain
    else:
        seen = [sample for rank in mine for batch in rank for sample in batch]
        assert set(seen) == set(range(23))
