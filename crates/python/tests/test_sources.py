"""What is read instead of `dataset[i]`: the same samples, or the reason why not."""

from __future__ import annotations

import copy
import functools
import json
import pickle
import shutil
import sys
import tarfile
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")

import numpy as np
import torchvision.transforms as v1
from bothends import _sources as sources
from bothends._sources import Unknown, recognise
from bothends._sources import marks
from bothends._sources.marks import Marks
from PIL import Image
from torch.utils.data import ConcatDataset, IterableDataset, Subset, random_split
from torchvision import datasets as vision

from images import photo, write_cifar10, write_photos

CROP = v1.Compose([v1.Resize(36), v1.CenterCrop(32), v1.ToTensor()])


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_cifar10(tmp_path / "cifar")
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    return tmp_path / "cifar"


def image_of(source: sources.Source, i: int) -> Image.Image:
    """What the native side reads of sample i, decoded with Pillow."""
    return sources.decoded(content_of(source.records, i))


def content_of(records: sources.Records, i: int) -> bytes:
    if isinstance(records, sources.Fetched):
        return records.fetch(i)
    assert isinstance(records, sources.Listing)
    content = (Path(records.root) / records.paths[i]).read_bytes()
    if records.extents is None:
        return content
    offset, length = records.extents[i]
    return content[offset : offset + length]


def rebuilt(source: sources.Source, i: int) -> Any:
    """Sample i as bothends makes it."""
    image = image_of(source, i)
    if source.transform is not None:
        image = source.transform(image)
    return source.fields.put_together(image, i)


def plain(value: Any) -> Any:
    """Comparable, whatever a sample is of."""
    if isinstance(value, Image.Image):
        return value.mode, value.size, value.tobytes()
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return type(value), value.tolist()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [plain(part) for part in value]
    return type(value), value


def assert_same(dataset: Any, only: Sequence[int] | None = None) -> sources.Source:
    """Every sample is the data set's, before and after pickling what puts it together."""
    source = recognise(dataset)
    assert source.n_samples == len(dataset)
    records = source.records
    if not isinstance(records, sources.Path):
        assert len(records) == len(dataset)
        assert records.labels == source.fields.labels
        copied = pickle.loads(pickle.dumps(source.fields))
        for i in range(len(dataset)) if only is None else only:
            expected = dataset[i]
            assert plain(rebuilt(source, i)) == plain(expected)
            assert plain(copied.target(i)) == plain(source.fields.target(i))
    assert source.changed(dataset) is None
    return source


def refused(dataset: Any) -> str:
    with pytest.raises(Unknown) as reason:
        recognise(dataset)
    return str(reason.value)


# --- folders


def test_an_image_folder_is_a_listing_with_labels(small: Path) -> None:
    source = assert_same(vision.ImageFolder(small, CROP))
    assert isinstance(source.records, sources.Listing)
    assert source.records.root == str(small)
    assert source.records.extents is None
    assert source.records.paths[0] == "class0/000.jpg"
    assert source.name == "ImageFolder, 23 files"


def test_subclasses_that_change_the_list_only(small: Path) -> None:
    class Merged(vision.ImageFolder):
        def find_classes(self, directory: Any) -> Any:
            classes, numbers = super().find_classes(directory)
            return classes, {name: number // 2 for name, number in numbers.items()}

    source = assert_same(Merged(small, CROP))
    assert set(source.fields.labels or []) == {0, 1, 2}


def test_a_dataset_folder_may_choose_its_files(small: Path) -> None:
    chosen = vision.DatasetFolder(
        small,
        vision.folder.default_loader,
        transform=CROP,
        is_valid_file=lambda name: name[-5] in "01234",
    )
    assert assert_same(chosen).n_samples == 13
    assert_same(vision.ImageFolder(small, CROP, loader=vision.folder.pil_loader))


def test_targets_may_be_anything(small: Path) -> None:
    dataset = vision.ImageFolder(small, CROP, target_transform=str)
    source = assert_same(dataset)
    assert source.fields.labels is None and source.fields.target(1) == "0"
    dataset = vision.ImageFolder(small, CROP)
    dataset.samples = [(file, {"text": file}) for file, _ in dataset.samples]
    assert assert_same(dataset).fields.labels is None
    dataset.samples = [(file, np.uint8(3)) for file, _ in dataset.samples]
    assert assert_same(dataset).fields.labels is None
    dataset.samples = [(file, True) for file, _ in dataset.samples]
    assert assert_same(dataset).fields.labels is None


def test_code_of_the_users_own_is_not_skipped(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Indexed(vision.ImageFolder):
        def __getitem__(self, index: int) -> Any:
            return *super().__getitem__(index), index

    class Batched(vision.ImageFolder):
        def __getitems__(self, indices: list[int]) -> Any:
            return [self[i] for i in indices]

    class Short(vision.ImageFolder):
        def __len__(self) -> int:
            return 3

    class Loads(vision.ImageFolder):
        @property
        def loader(self) -> Any:
            return Image.open

        @loader.setter
        def loader(self, _: Any) -> None:
            pass

    assert "Indexed is not known" in refused(Indexed(small))
    assert "bothends.torch.Samples" in refused(Indexed(small))
    assert "__getitems__" in refused(Batched(small))
    assert "its length is 3" in refused(Short(small))
    assert "loader of its own" in refused(Loads(small))
    assert "loader of its own" in refused(vision.ImageFolder(small, loader=Image.open))
    dataset = vision.ImageFolder(small)
    original = vision.DatasetFolder.__getitem__

    @functools.wraps(original)
    def timed(self: Any, index: int) -> Any:
        return original(self, index)

    with monkeypatch.context() as patch:
        patch.setattr(vision.DatasetFolder, "__getitem__", timed)
        assert "not known" in refused(dataset)
    with monkeypatch.context() as patch:
        patch.setattr("torchvision.datasets.folder.pil_loader", Image.open)
        assert "loader of its own" in refused(dataset)
    assert_same(dataset)


def test_every_format_of_an_image_folder_is_read(small: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(small, tmp_path / "root"))
    for ending in vision.folder.IMG_EXTENSIONS:
        image = photo(1, 40, 41)
        (image.convert("L") if ending == ".pgm" else image).save(root / "class0" / f"z{ending}")
    dataset = vision.ImageFolder(root, CROP)
    assert len(dataset) == 23 + len(vision.folder.IMG_EXTENSIONS)
    assert_same(dataset)


def test_paths_below_a_root(small: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(small.parent)
    name, folder = small.name, small.parent.name
    for root in (name, f"./{name}", f"{small}/", f"../{folder}/{name}"):
        assert_same(vision.ImageFolder(root, CROP))
    dataset = vision.ImageFolder(small, CROP)
    elsewhere = Path(shutil.copy(small / "class0" / "000.jpg", tmp_path / "one.jpg"))
    dataset.samples.append((str(elsewhere), 4))
    source = assert_same(dataset)
    assert isinstance(source.records, sources.Listing)
    assert str(elsewhere).startswith(source.records.root)
    dataset.samples.append((f"{small}/class0/../class0/000.jpg", 4))
    assert "`..`" in refused(dataset)
    dataset.samples[-1] = (f"{small}/class0/\udcff.jpg", 4)
    assert "not UTF-8" in refused(dataset)


def test_a_link_is_what_it_points_to(small: Path, tmp_path: Path) -> None:
    (tmp_path / "root").symlink_to(small)
    source = assert_same(vision.ImageFolder(tmp_path / "root", CROP))
    assert isinstance(source.records, sources.Listing)
    assert source.records.root == str(tmp_path / "root")


def test_nothing_to_read(small: Path) -> None:
    assert "no samples" in refused(Subset(vision.ImageFolder(small), []))
    assert "is the path" in refused(str(small))
    assert "a list are in memory" in refused([1, 2, 3])

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(())

    assert "is a stream" in refused(Stream())
    assert "arrays in memory" in refused(vision.FakeData(size=3))


# --- CIFAR-10


@pytest.mark.parametrize("train", [True, False])
def test_cifar10_is_its_files(cifar: Path, train: bool) -> None:
    dataset = vision.CIFAR10(cifar, train=train, transform=v1.ToTensor())
    source = assert_same(dataset)
    name = "cifar-10-batches-py" if train else "cifar-10-batches-py/test_batch"
    assert source.records == sources.Path(str(cifar / name))
    assert source.fields.labels == dataset.targets
    assert source.image_size == (32, 32) and source.rows is None
    part = recognise(Subset(Subset(dataset, range(2, 10)), [-1, 0, 0]))
    assert part.rows == [9, 2, 2]
    assert part.fields.labels == [dataset.targets[row] for row in (9, 2, 2)]
    twice = recognise(ConcatDataset([dataset, Subset(dataset, [3])]))
    assert twice.rows == [*range(len(dataset)), 3]


def test_a_cifar10_that_was_changed(cifar: Path) -> None:
    dataset = vision.CIFAR10(cifar, transform=v1.ToTensor())
    source = recognise(dataset)
    dataset.targets[50] = (dataset.targets[50] + 1) % 10
    assert "`targets` of the CIFAR10" in (source.changed(dataset) or "")
    noisy = recognise(dataset)
    assert noisy.fields.labels is None
    assert noisy.fields.put_together("image", 50) == ("image", dataset.targets[50])
    # In the last file.
    dataset.data = dataset.data.copy()
    dataset.data[59] += 1
    assert "are not those of its files" in refused(dataset)
    dataset = vision.CIFAR10(cifar)
    dataset.data, dataset.targets = dataset.data[::2], dataset.targets[::2]
    assert "Subset" in refused(dataset)
    dataset.data = dataset.data[:0]
    assert "are not those of its files" in refused(dataset)


# --- torchvision's data sets of files


def write_named(folder: Path, names: Sequence[str]) -> None:
    for n, name in enumerate(names):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        photo(n, 40 + n, 44).save(place)


def flowers(root: Path) -> Any:
    folder = root / "flowers-102"
    write_named(folder / "jpg", [f"image_{n:05}.jpg" for n in range(1, 7)])
    savemat = pytest.importorskip("scipy.io").savemat
    savemat(folder / "imagelabels.mat", {"labels": np.arange(1, 7, dtype=np.uint8)[None]})
    splits = {"trnid": [[2, 4, 6]], "valid": [[1, 3]], "tstid": [[5, 6]]}
    savemat(folder / "setid.mat", splits)
    return functools.partial(vision.Flowers102, root)


def food(root: Path) -> Any:
    folder = root / "food-101"
    names = {"cake": ["cake/1", "cake/2"], "soup": ["soup/3"]}
    write_named(folder / "images", [f"{name}.jpg" for part in names.values() for name in part])
    (folder / "meta").mkdir()
    (folder / "meta" / "train.json").write_text(json.dumps(names))
    return functools.partial(vision.Food101, root)


def textures(root: Path) -> Any:
    folder = root / "dtd" / "dtd"
    names = ["banded/banded_1.jpg", "dotted/dotted_1.jpg"]
    write_named(folder / "images", names)
    (folder / "labels").mkdir()
    (folder / "labels" / "train1.txt").write_text("\n".join(names))
    return functools.partial(vision.DTD, root)


def aircraft(root: Path) -> Any:
    data = root / "fgvc-aircraft-2013b" / "data"
    write_named(data / "images", ["1.jpg", "2.jpg"])
    (data / "variants.txt").write_text("A 1\nB 2\n")
    (data / "images_variant_trainval.txt").write_text("1 B 2\n2 A 1\n")
    return functools.partial(vision.FGVCAircraft, root)


def sentences(root: Path) -> Any:
    write_named(root / "rendered-sst2" / "train", ["negative/1.png", "positive/2.png"])
    return functools.partial(vision.RenderedSST2, root)


def satellites(root: Path) -> Any:
    write_named(root / "eurosat" / "2750", ["Forest/1.jpg", "River/2.jpg"])
    return functools.partial(vision.EuroSAT, root)


def cars(root: Path) -> Any:
    savemat = pytest.importorskip("scipy.io").savemat
    folder = root / "stanford_cars"
    write_named(folder / "cars_train", ["1.jpg", "2.jpg"])
    (folder / "devkit").mkdir()
    kinds = np.array([("1.jpg", 2), ("2.jpg", 1)], dtype=[("fname", "O"), ("class", "u1")])
    savemat(folder / "devkit" / "cars_train_annos.mat", {"annotations": kinds})
    names = np.array(["a", "b"], dtype=object)
    savemat(folder / "devkit" / "cars_meta.mat", {"class_names": names})
    return functools.partial(vision.StanfordCars, root)


def pets(root: Path) -> Any:
    folder = root / "oxford-iiit-pet"
    write_named(folder / "images", ["Cat_1.jpg", "dog_2.jpg"])
    write_named(folder / "annotations" / "trimaps", ["Cat_1.png", "dog_2.png"])
    (folder / "annotations" / "trainval.txt").write_text("Cat_1 1 1 1\ndog_2 2 2 1\n")
    return functools.partial(vision.OxfordIIITPet, root)


def species(root: Path) -> Any:
    names = [f"{n:05}_K_P_C_O_F_G_{n}" for n in range(3)]
    write_named(root / "2021_train", [f"{name}/{n}.jpg" for n, name in enumerate(names)])
    loader = vision.folder.default_loader
    return functools.partial(vision.INaturalist, root, loader=loader)


def captions(root: Path) -> Any:
    write_named(root, ["b.jpg", "a.jpg"])
    (root / "notes").write_text("a.jpg#0\tone\nb.jpg#0\ttwo\na.jpg#1\tthree\n")
    return functools.partial(vision.Flickr30k, str(root), str(root / "notes"))


class Coco:
    """What torchvision calls of pycocotools, which is not installed everywhere."""

    def __init__(self, file: str) -> None:
        table = json.loads(Path(file).read_text())
        self.imgs = {image["id"]: image for image in table["images"]}
        self.anns = {note["id"]: note for note in table["annotations"]}

    def loadImgs(self, ids: Any) -> list[Any]:
        return [self.imgs[n] for n in (ids if isinstance(ids, list) else [ids])]

    def getAnnIds(self, image: int) -> list[int]:
        return [n for n, note in self.anns.items() if note["image_id"] == image]

    def loadAnns(self, ids: list[int]) -> list[Any]:
        return [self.anns[n] for n in ids]


@pytest.fixture(autouse=True)
def pycocotools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycocotools", types.ModuleType("pycocotools"))
    module = types.ModuleType("pycocotools.coco")
    monkeypatch.setattr(module, "COCO", Coco, raising=False)
    monkeypatch.setitem(sys.modules, "pycocotools.coco", module)


def coco(kind: Any) -> Any:
    def make(root: Path) -> Any:
        write_named(root, ["deep/b.jpg", "a.jpg"])
        table = {
            "images": [{"id": 7, "file_name": "deep/b.jpg"}, {"id": 3, "file_name": "a.jpg"}],
            "annotations": [
                {"id": 1, "image_id": 7, "bbox": [1, 2, 3, 4], "caption": "one"},
                {"id": 2, "image_id": 7, "bbox": [5, 6, 7, 8], "caption": "two"},
            ],
            "categories": [],
        }
        (root / "table.json").write_text(json.dumps(table))
        return functools.partial(kind, root, str(root / "table.json"))

    return make


def voc(kind: Any) -> Any:
    def make(root: Path) -> Any:
        folder = root / "VOCdevkit" / "VOC2012"
        write_named(folder / "JPEGImages", ["1.jpg", "2.jpg"])
        write_named(folder / "SegmentationClass", ["1.png", "2.png"])
        for part in ("Main", "Segmentation"):
            (folder / "ImageSets" / part).mkdir(parents=True)
            (folder / "ImageSets" / part / "train.txt").write_text("2\n1\n")
        (folder / "Annotations").mkdir()
        for n in (1, 2):
            line = f"<annotation><object><name>{n}</name></object></annotation>"
            (folder / "Annotations" / f"{n}.xml").write_text(line)
        return functools.partial(kind, root)

    return make


LABELLED = [flowers, food, textures, aircraft, sentences, satellites, cars, pets, species]
OTHERS = [
    captions,
    voc(vision.VOCSegmentation),
    voc(vision.VOCDetection),
    coco(vision.CocoDetection),
    coco(vision.CocoCaptions),
]


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchvision.datasets.flowers102.check_integrity", lambda *_: True)
    monkeypatch.setattr(vision.INaturalist, "_check_exists", lambda self: True)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("make", LABELLED, ids=lambda make: make.__name__)
def test_file_based_sets_with_labels(make: Callable[[Path], Any], tmp_path: Path) -> None:
    dataset = make(tmp_path)(transform=CROP)
    assert assert_same(dataset).fields.labels is not None
    changed = assert_same(make(tmp_path / "other")(transform=CROP, target_transform=str))
    assert changed.fields.labels is None
    assert_same(ConcatDataset([dataset, Subset(dataset, [1, 0])]))


@pytest.mark.parametrize("make", OTHERS, ids=range(len(OTHERS)))
def test_file_based_sets_with_other_targets(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    dataset = make(tmp_path)(transform=CROP)
    assert assert_same(dataset).fields.labels is None
    assert_same(Subset(dataset, [1]))
    assert_same(ConcatDataset([dataset, dataset]))


def bare(kind: Any, root: Path, **attributes: Any) -> Any:
    """A data set without its constructor, whose archives have checksums and thousands of files."""
    dataset = kind.__new__(kind)
    vision.VisionDataset.__init__(dataset, root, transform=CROP)
    vars(dataset).update(attributes)
    return dataset


def test_sets_that_are_only_made_of_their_archives(tmp_path: Path) -> None:
    names = ["dataset/1.jpg", "dataset/2.jpg"]
    write_named(tmp_path, names)
    root = str(tmp_path)
    files = [f"{root}/{name}" for name in names]
    pairs = list(zip(files, [4, 2], strict=True))
    opens = {"loader": vision.folder.default_loader}
    notes = {file: [file] for file in files}
    lists = {"_image_files": list(map(Path, files)), "_labels": [5, 6], **opens}
    for dataset in (
        bare(vision.SUN397, tmp_path, **lists),
        bare(vision.CLEVRClassification, tmp_path, **lists),
        bare(vision.Imagenette, tmp_path, _samples=pairs, **opens),
        bare(vision.GTSRB, tmp_path, _samples=pairs),
        bare(vision.Places365, tmp_path, imgs=pairs, **opens),
        bare(vision.LFWPeople, tmp_path, data=files, targets=[1, 2], _loader=opens["loader"]),
    ):
        assert assert_same(dataset).fields.labels is not None
    photos = {"photos": ["1.jpg", "2.jpg"], "captions": ["a", "b"], **opens}
    city = {"targets": [[file] for file in files], "target_type": ["semantic"]}
    for dataset in (
        bare(vision.CLEVRClassification, tmp_path, **{**lists, "_labels": [None, None]}),
        bare(vision.SBU, root, **photos),
        bare(vision.Flickr8k, root, ids=files, annotations=notes, **opens),
        bare(vision.SBDataset, tmp_path, images=files, masks=files, _get_target=str.upper),
        bare(vision.Cityscapes, tmp_path, images=files, **city),
    ):
        assert assert_same(dataset).fields.labels is None


def test_other_data_sets_of_torchvision_are_refused(tmp_path: Path) -> None:
    for kind, said in (
        (vision.CelebA, "does not convert its images to RGB"),
        (vision.MNIST, "arrays in memory"),
        (vision.STL10, "arrays in memory"),
        (vision.CIFAR100, "CIFAR-100 is not read"),
        (vision.LFWPairs, "LFWPairs is not known"),
        (vision.HMDB51, "HMDB51 is not known"),
    ):
        assert said in refused(bare(kind, tmp_path))


@pytest.mark.parametrize("make", [pets, voc(vision.VOCDetection)], ids=["pets", "voc"])
def test_transforms_of_image_and_target_together(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    kind = make(tmp_path)
    assert "take image and target together" in refused(kind(transforms=lambda *pair: pair))
    dataset = kind(transform=CROP)
    # What such data sets call is a copy of it.
    dataset.transform = None
    assert assert_same(dataset).transform is CROP


def test_several_targets_of_a_pet(tmp_path: Path) -> None:
    kinds = ["category", "binary-category", "segmentation"]
    kind = pets(tmp_path)
    assert_same(kind(target_types=kinds))
    assert_same(kind(target_types="binary-category"))


@pytest.mark.usefixtures("unchecked")
def test_images_that_are_not_made_rgb_are_refused(tmp_path: Path) -> None:
    kind = species(tmp_path)
    assert "default_loader" in refused(kind(loader=None))
    write_named(tmp_path / "caltech256/256_ObjectCategories", ["001.a/001_0001.jpg"])
    caltech = vision.Caltech256(tmp_path)
    assert "does not convert its images to RGB" in refused(caltech)

    class Converted(vision.Caltech256):
        def sample(self, i: int) -> Any:
            folder = self.categories[self.y[i]]
            name = f"{self.y[i] + 1:03}_{self.index[i]:04}.jpg"
            return f"{self.root}/256_ObjectCategories/{folder}/{name}", self.y[i]

    assert_same(Converted(tmp_path, transform=CROP))


def test_coco_that_loads_otherwise(tmp_path: Path) -> None:
    class Grey(vision.CocoDetection):
        def _load_image(self, id: int) -> Any:
            return super()._load_image(id).convert("L")

    assert "overrides `_load_image`" in refused(coco(Grey)(tmp_path)())


# --- parts and rows of data sets


def test_subsets_choose_as_indexing_does(small: Path) -> None:
    dataset = vision.ImageFolder(small, CROP)
    for indices in (
        [3, 1, 1, -1],
        range(5, 20, 3),
        torch.tensor([3, 1, -2]),
        np.array([4, 4, 0]),
        (np.int64(3), torch.tensor(2)),
    ):
        assert assert_same(Subset(dataset, indices)).fields.labels is not None
    for part in random_split(dataset, [0.5, 0.3, 0.2]):
        assert_same(part)
    assert_same(Subset(Subset(ConcatDataset([dataset, dataset]), range(20, 40)), [-1, 3, 3]))
    other = vision.ImageFolder(small, CROP, target_transform=str)
    assert_same(Subset(Subset(other, range(9, 0, -1)), [0, -1]))


def test_subsets_that_are_wrong_or_do_more(small: Path) -> None:
    class More(Subset[Any]):
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(index), index

        def __getitems__(self, indices: list[int]) -> Any:
            return [self[i] for i in indices]

    class Renamed(Subset[Any]):
        pass

    dataset = vision.ImageFolder(small)
    assert "asks for sample 23 of 23" in refused(Subset(dataset, [0, 23]))
    assert "asks for sample -24 of 23" in refused(Subset(dataset, [-24, 3]))
    assert "booleans" in refused(Subset(dataset, np.ones(23, dtype=bool)))
    assert "not all numbers" in refused(Subset(dataset, ["a"]))  # type: ignore[list-item]
    assert "More is not known" in refused(More(dataset, [1]))
    assert_same(Renamed(dataset, [1]))


def test_data_sets_in_a_row(small: Path, tmp_path: Path) -> None:
    write_photos(tmp_path / "more", 4, 2, side=40)
    one = vision.ImageFolder(small, CROP)
    two = vision.ImageFolder(tmp_path / "more", CROP)
    source = assert_same(ConcatDataset([one, two]))
    assert source.fields.labels is not None
    assert source.name == "ImageFolder, 23 files + ImageFolder, 4 files"
    two.target_transform = str
    assert assert_same(ConcatDataset([one, two])).fields.labels is None
    two.transform = v1.Compose([v1.Resize(36), v1.CenterCrop(32), v1.ToTensor()])
    assert_same(ConcatDataset([one, Subset(two, []), ConcatDataset([two, one])]))
    two.transform = v1.Compose([v1.Resize(38), v1.CenterCrop(32), v1.ToTensor()])
    assert "different transforms" in refused(ConcatDataset([one, two]))
    # Functions are the same only if they are one.
    one.transform, two.transform = (lambda image: image), (lambda image: image)
    assert "different transforms" in refused(ConcatDataset([one, two]))


def test_kinds_that_do_not_go_together(small: Path, cifar: Path) -> None:
    folder, pickled = vision.ImageFolder(small), vision.CIFAR10(cifar)
    assert "cannot be read together" in refused(ConcatDataset([folder, pickled]))
    whole = ConcatDataset([folder, folder])
    folder.samples.pop()
    assert "changed in length" in refused(whole)


# --- changes


def test_changes_are_seen(small: Path) -> None:
    dataset = vision.ImageFolder(small, copy.deepcopy(CROP))
    subset = Subset(ConcatDataset([dataset, dataset]), list(range(40)))
    source = recognise(subset)
    assert source.changed(subset) is None
    assert source.changed(dataset) == "it is a different data set"

    def seen(name: str) -> bool:
        return f"`{name}` of the" in (source.changed(subset) or "")

    dataset.transform.transforms[0].size = 40
    assert seen("transform")
    dataset.transform.transforms[0].size = 36
    assert source.changed(subset) is None
    dataset.transform.transforms.append(v1.RandomErasing())
    assert seen("transform")
    dataset.transform = copy.deepcopy(CROP)
    assert source.changed(subset) is None
    file, label = dataset.samples[7]
    dataset.samples[7] = (file, label + 1)
    assert seen("samples")
    dataset.samples[7] = (file, label)
    assert source.changed(subset) is None
    dataset.samples.append((file, label))
    assert seen("samples")
    dataset.samples.pop()
    dataset.target_transform = str
    assert seen("target_transform")
    dataset.target_transform = None
    subset.indices[0] = 3
    assert seen("indices")


@pytest.mark.parametrize("n", [40, 7000])
def test_changes_of_an_array_in_place_are_seen(n: int) -> None:
    """Symptom: of 16 MiB and more, such as CIFAR-10's images, nothing but another array is seen."""
    images = np.random.default_rng(1).integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
    # As torchvision has them: not in the order in which they are stored.
    dataset = types.SimpleNamespace(data=images.transpose(0, 2, 3, 1))
    found = Marks().of(dataset).data(dataset, "data")

    def is_seen() -> bool:
        seen = found.change(dataset) is not None
        dataset.data[...] = before
        assert found.change(dataset) is None
        return seen

    before = dataset.data.copy()
    for place in (0, n // 2, n - 1):
        dataset.data[place, 31, 31, 2] ^= 1
        assert is_seen(), place
        dataset.data[place] = before[place, ::-1]
        assert is_seen(), "upside down"
    dataset.data[[0, 1]] = before[[1, 0]]
    assert is_seen(), "two have changed places"
    dataset.data[...] = 255 - before
    assert is_seen(), "all"


def test_an_array_of_many_parts_is_summed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: half a second at the beginning of each epoch, for ten parts of CIFAR-10."""
    n_summed = 0

    def sums(value: Any) -> Any:
        nonlocal n_summed
        n_summed += 1
        return summed(value)

    summed = marks._sums
    monkeypatch.setattr(marks, "_sums", sums)
    whole = types.SimpleNamespace(data=np.zeros((7000, 3, 32, 32), np.uint8))
    found = Marks().of(whole)
    for _ in range(10):
        part = types.SimpleNamespace(dataset=whole)
        below = Marks().of(whole).data(whole, "data")
        found.all_of(Marks().of(part).data(part, "dataset").all_of(below))
    n_summed = 0
    assert found.change(whole) is None and n_summed == 1
    whole.data[6000, 2] = 1
    assert found.change(whole) == "`data` of the SimpleNamespace was changed"


def test_a_very_large_array_is_not_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: epochs of 100 GB of mapped samples begin minutes late."""
    dataset = types.SimpleNamespace(data=np.zeros(1 << 25, np.uint8))
    monkeypatch.setattr(marks, "_LARGEST_ADDED", (1 << 25) - 1)
    found = Marks().of(dataset).data(dataset, "data")
    dataset.data[7] = 1
    assert found.change(dataset) is None
    dataset.data = dataset.data.copy()
    assert found.change(dataset) is not None


def test_a_wrapper_of_transforms_is_looked_into(small: Path) -> None:
    class Preset:
        def __init__(self) -> None:
            self.transforms = v1.Compose([v1.Resize(36), v1.ToTensor()])
            self.calls = 0

        def __call__(self, image: Any) -> Any:
            self.calls += 1
            return self.transforms(image)

    dataset = vision.ImageFolder(small, Preset())
    source = recognise(dataset)
    _ = dataset[0]
    assert source.changed(dataset) is None
    dataset.transform.transforms.transforms[0].size = 40
    assert source.changed(dataset) is not None


# --- timm


def timm_dataset(root: Path, **options: Any) -> Any:
    data = pytest.importorskip("timm.data", reason="timm is not installed")
    return data.create_dataset("", root=str(root), **options)


def test_timms_folder(small: Path) -> None:
    timm_dataset(small)
    dataset = timm_dataset(small, transform=CROP)
    assert assert_same(dataset).fields.labels is not None
    source = recognise(dataset)
    assert "cannot be read" in source.notes[0]
    dataset.target_transform = str
    assert assert_same(dataset).fields.labels is None
    assert_same(random_split(dataset, [20, 3])[1])
    dataset.load_bytes = True
    assert "load_bytes" in refused(dataset)
    dataset.load_bytes, dataset.input_img_mode = False, "L"
    assert "converts to 'L'" in refused(dataset)


def test_timms_tar_files(small: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        archive.add(small, ".")
    assert_same(timm_dataset(tmp_path / "all.tar", transform=CROP))
    # A tar file of tar files.
    (tmp_path / "classes").mkdir()
    for folder in sorted(small.iterdir()):
        with tarfile.open(tmp_path / "classes" / f"{folder.name}.tar", "w") as archive:
            archive.add(folder, ".")
    with tarfile.open(tmp_path / "nested.tar", "w") as archive:
        archive.add(tmp_path / "classes", ".")
    assert_same(timm_dataset(tmp_path / "nested.tar", transform=CROP))


def test_the_protocol_in_torchs_data_sets(small: Path) -> None:
    class Listed(torch.utils.data.Dataset[Any]):
        def __init__(self, files: list[Path]) -> None:
            self.files = files

        def __len__(self) -> int:
            return len(self.files)

        def sample(self, i: int) -> Any:
            return self.files[i], i

    files = sorted(small.rglob("*.jpg"))
    dataset = Listed(files)
    source = recognise(dataset)
    assert source.fields.labels == list(range(23)) and source.notes == ()
    part = recognise(Subset(ConcatDataset([dataset, vision.ImageFolder(small)]), [30, 2]))
    assert isinstance(part.records, sources.Listing)
    assert content_of(part.records, 1) == files[2].read_bytes()

    class Both(Listed):
        def sample(self, i: int) -> Any:
            return self.files[i].read_bytes(), {"number": i}

    fetched = recognise(Subset(ConcatDataset([Both(files), Both(files)]), [25, 3]))
    assert content_of(fetched.records, 0) == files[2].read_bytes()
    assert fetched.fields.target(0) == {"number": 2}
    assert fetched.fields.put_together("image", 1) == ("image", {"number": 3})
