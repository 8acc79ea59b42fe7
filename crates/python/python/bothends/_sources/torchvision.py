"""torchvision's data sets whose samples are files.

A data set is recognised by the code of its `__getitem__`: subclasses that do not override it are
recognised, copies and wrappers are not. Each kind says where the files and the targets are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from .cifar import cifar10_source
from .code import home, refuse_batched
from .fields import paired
from .marks import Marks
from .records import AnyPath, Source, Unknown, exact_labels, listing

Targets: TypeAlias = "Sequence[Any] | Callable[[int], Any]"

_HERE = "torchvision.datasets."
_LOADERS = frozenset({f"{_HERE}folder.default_loader", f"{_HERE}folder.pil_loader"})
_ADD_SAMPLE = (
    "wrap it in a class with a method sample(i) that returns (path, target): "
    "bothends.torch.Samples"
)


def _separate(dataset: Any) -> tuple[Any, Any]:
    return dataset.transform, dataset.target_transform


def _together(dataset: Any) -> tuple[Any, Any]:
    """For a data set that calls `transforms` with image and target."""
    both = dataset.transforms
    if both is None:
        return None, None
    if home(type(both).__call__) != f"{_HERE}vision.StandardTransform.__call__":
        raise Unknown(
            "its `transforms` take image and target together",
            "give `transform` and `target_transform` if they are independent of each other",
        )
    return both.transform, both.target_transform


@dataclass(frozen=True)
class _Kind:
    """How one `__getitem__` reads.

    Attributes:
        data: the attributes that hold its samples.
        files: the paths of all samples.
        targets: of all samples, before `target_transform`.
        loader: the attribute that opens a file; without one, it converts to RGB.
        calls: gives what is called with image and target.
        methods: the data set's other methods that must not be overridden.
    """

    data: tuple[str, ...]
    files: Callable[[Any], Iterable[AnyPath]]
    targets: Callable[[Any], Targets]
    loader: str | None = None
    calls: Callable[[Any], tuple[Any, Any]] = _separate
    methods: tuple[str, ...] = ()


def torchvision_source(dataset: Any, code: str) -> Source | None:
    """The source, if the data set's `__getitem__` is one of torchvision's that open files.

    Raises:
        Unknown: it is one of torchvision's, but not supported.
    """
    if not code.startswith(_HERE):
        return None
    if code == f"{_HERE}cifar.CIFAR10.__getitem__":
        return cifar10_source(dataset)
    kind = _KINDS.get(code.removeprefix(_HERE))
    if kind is None:
        raise _refused(dataset, code)
    refuse_batched(dataset)
    _refuse_overridden(dataset, kind)
    transform, to_target = kind.calls(dataset)
    targets = kind.targets(dataset)
    labels = None if callable(targets) else exact_labels(targets)
    files = listing(kind.files(dataset), dataset.root, labels=None if to_target else labels)
    if len(files) != len(dataset):
        line = f"its length is {len(dataset)}, but it lists {len(files)} files"
        raise Unknown(line, "use torch.utils.data.Subset for a part of it")
    name = type(dataset).__name__
    return Source(
        name=f"{name}, {len(files)} files",
        records=files,
        n_samples=len(files),
        transform=transform,
        fields=paired(targets, labels, to_target),
        marks=_marks(dataset, kind),
    )


def _marks(dataset: Any, kind: _Kind) -> Marks:
    marks = Marks().of(dataset).data(dataset, *kind.data)
    if kind.loader is not None:
        marks.transforms(dataset, kind.loader)
    names = ("transform", "target_transform") if kind.calls is _separate else ("transforms",)
    return marks.transforms(dataset, *names)


def _refuse_overridden(dataset: Any, kind: _Kind) -> None:
    name = type(dataset).__name__
    for method in kind.methods:
        if not home(getattr(type(dataset), method)).startswith(_HERE):
            raise Unknown(f"the {name} overrides `{method}`", _ADD_SAMPLE)
    if kind.loader is None:
        return
    # Before they had loaders, they all converted to RGB themselves.
    loader = getattr(dataset, kind.loader, None)
    is_inaturalist = "index" in kind.data
    if loader is None and is_inaturalist:
        raise Unknown(
            f"the {name} does not convert its images to RGB",
            "give it loader=torchvision.datasets.folder.default_loader",
        )
    known = loader is None or home(loader) in _LOADERS or home(loader).startswith(f"{_HERE}lfw.")
    if not known or not _is_pillow():
        remedy = f"leave its loader out, or {_ADD_SAMPLE}"
        raise Unknown(f"the {name} has a loader of its own", remedy)


def _is_pillow() -> bool:
    """Whether torchvision's own loader is unchanged and decodes with Pillow."""
    folder = sys.modules.get(f"{_HERE}folder")
    torchvision = sys.modules.get("torchvision")
    backend = getattr(torchvision, "get_image_backend", lambda: "PIL")()
    loader = getattr(folder, "pil_loader", None)
    return backend == "PIL" and home(loader) == f"{_HERE}folder.pil_loader"


def _refused(dataset: Any, code: str) -> Unknown:
    name = type(dataset).__name__
    module = code.removeprefix(_HERE).partition(".")[0]
    if module in _NOT_RGB:
        return Unknown(f"the {name} does not convert its images to RGB", _ADD_SAMPLE)
    if module in _IN_MEMORY:
        return Unknown(f"the images of the {name} are arrays in memory, not files")
    return Unknown(f"the data set {name} is not known", _ADD_SAMPLE)


# Modules of data sets that return images as they are in the file, grey or with a palette.
_NOT_RGB = frozenset({"caltech", "celeba", "kitti", "omniglot", "widerface"})
_IN_MEMORY = frozenset(
    {"cifar", "fakedata", "fer2013", "mnist", "pcam", "phototour", "semeion", "stl10", "svhn"}
    | {"usps"}
)


def _first(name: str) -> Callable[[Any], list[Any]]:
    """The files of a list of (file, label)."""
    return lambda dataset: [file for file, _ in getattr(dataset, name)]


def _second(name: str) -> Callable[[Any], list[Any]]:
    return lambda dataset: [label for _, label in getattr(dataset, name)]


def _list(name: str) -> Callable[[Any], Sequence[Any]]:
    return lambda dataset: getattr(dataset, name)


def _read(read: Callable[[Any, int], Any]) -> Callable[[Any], Callable[[int], Any]]:
    """Targets read one by one."""
    return lambda dataset: partial(read, dataset)


def _below(folder: str, name: str) -> Callable[[Any], list[str]]:
    """Files named relative to a folder of the data set."""
    return lambda dataset: [
        os.path.join(dataset.root, folder, file) for file in getattr(dataset, name)
    ]


def _one_or_more(targets: list[Any]) -> Any:
    """The target, or a tuple of several."""
    return targets[0] if len(targets) == 1 else tuple(targets)


def _pet_targets(dataset: Any) -> Targets:
    if list(dataset._target_types) == ["category"]:
        return dataset._labels  # type: ignore[no-any-return]
    return partial(_pet_target, dataset)


def _pet_target(dataset: Any, i: int) -> Any:
    lists = {"category": dataset._labels, "binary-category": dataset._bin_labels}
    targets = [
        lists[kind][i] if kind in lists else _image(dataset._segs[i])
        for kind in dataset._target_types
    ]
    return _one_or_more(targets) if targets else None


def _species(dataset: Any) -> list[str]:
    return [
        os.path.join(dataset.root, dataset.all_categories[category], file)
        for category, file in dataset.index
    ]


def _species_targets(dataset: Any) -> Targets:
    if dataset.target_type == ["full"]:
        return [category for category, _ in dataset.index]
    return partial(_species_target, dataset)


def _species_target(dataset: Any, i: int) -> Any:
    category = dataset.index[i][0]
    of_kind = {"full": category, **dataset.categories_map[category]}
    return _one_or_more([of_kind[kind] for kind in dataset.target_type])


def _coco(dataset: Any) -> list[str]:
    images = dataset.coco.loadImgs(dataset.ids)
    return [os.path.join(dataset.root, image["file_name"]) for image in images]


def _coco_target(dataset: Any, i: int) -> Any:
    return dataset._load_target(dataset.ids[i])


def _voc_mask(dataset: Any, i: int) -> Any:
    return _image(dataset.masks[i])


def _voc_boxes(dataset: Any, i: int) -> Any:
    parse = sys.modules[f"{_HERE}voc"].ET_parse
    return dataset.parse_voc_xml(parse(dataset.annotations[i]).getroot())


def _sbd_target(dataset: Any, i: int) -> Any:
    return dataset._get_target(dataset.masks[i])


def _city_target(dataset: Any, i: int) -> Any:
    files = zip(dataset.target_type, dataset.targets[i], strict=True)
    read = {"polygon": dataset._load_json}
    return _one_or_more([read.get(kind, _image)(file) for kind, file in files])


def _captions(dataset: Any, i: int) -> Any:
    return dataset.annotations[dataset.ids[i]]


def _image(file: Any) -> Any:
    """A mask, exactly as in its file."""
    from PIL import Image

    return Image.open(file)


_files = _list("_image_files")
_FILES = _Kind(("_image_files", "_labels"), _files, _list("_labels"), "loader")
_SAMPLES = _Kind(("_samples",), _first("_samples"), _second("_samples"), "loader")

# By the code of `__getitem__`, below torchvision.datasets.
_KINDS = {
    "folder.DatasetFolder.__getitem__": _Kind(
        ("samples",), _first("samples"), _second("samples"), "loader"
    ),
    "flowers102.Flowers102.__getitem__": _FILES,
    "fgvc_aircraft.FGVCAircraft.__getitem__": _FILES,
    "food101.Food101.__getitem__": _FILES,
    "dtd.DTD.__getitem__": _FILES,
    "sun397.SUN397.__getitem__": _FILES,
    "clevr.CLEVRClassification.__getitem__": _FILES,
    "stanford_cars.StanfordCars.__getitem__": _SAMPLES,
    "rendered_sst2.RenderedSST2.__getitem__": _SAMPLES,
    "imagenette.Imagenette.__getitem__": _SAMPLES,
    "gtsrb.GTSRB.__getitem__": _Kind(("_samples",), _first("_samples"), _second("_samples")),
    "places365.Places365.__getitem__": _Kind(
        ("imgs",), _first("imgs"), _second("imgs"), "loader", _together
    ),
    "oxford_iiit_pet.OxfordIIITPet.__getitem__": _Kind(
        ("_images", "_labels", "_bin_labels", "_target_types"),
        _list("_images"),
        _pet_targets,
        calls=_together,
    ),
    "inaturalist.INaturalist.__getitem__": _Kind(
        ("index", "all_categories", "target_type"), _species, _species_targets, "loader"
    ),
    "lfw.LFWPeople.__getitem__": _Kind(
        ("data", "targets"), _list("data"), _list("targets"), "_loader"
    ),
    "sbu.SBU.__getitem__": _Kind(
        ("photos", "captions"), _below("dataset", "photos"), _list("captions"), "loader"
    ),
    "flickr.Flickr8k.__getitem__": _Kind(
        ("ids", "annotations"), _list("ids"), _read(_captions), "loader"
    ),
    "flickr.Flickr30k.__getitem__": _Kind(
        ("ids", "annotations"), _below("", "ids"), _read(_captions), "loader"
    ),
    "coco.CocoDetection.__getitem__": _Kind(
        ("ids", "coco"),
        _coco,
        _read(_coco_target),
        calls=_together,
        methods=("_load_image",),
    ),
    "voc.VOCSegmentation.__getitem__": _Kind(
        ("images", "targets"), _list("images"), _read(_voc_mask), calls=_together
    ),
    "voc.VOCDetection.__getitem__": _Kind(
        ("images", "targets"), _list("images"), _read(_voc_boxes), calls=_together
    ),
    "sbd.SBDataset.__getitem__": _Kind(
        ("images", "masks"), _list("images"), _read(_sbd_target), calls=_together
    ),
    "cityscapes.Cityscapes.__getitem__": _Kind(
        ("images", "targets", "target_type"),
        _list("images"),
        _read(_city_target),
        calls=_together,
    ),
}
