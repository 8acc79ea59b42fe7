"""What the scripts of the matrix have in common: their options, and a model that is small."""

import argparse

SIZE = 64
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def options(*switches, **choices):
    """The options that every script has, and its own: switches, and options with defaults."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    # At rate 0 the model stays as it is, so that every evaluation can be compared.
    parser.add_argument("--lr", type=float, default=0.0)
    parser.add_argument("--save-every", type=int, default=10**9, help="steps")
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    parser.add_argument("--resume", action="store_true")
    for switch in switches:
        parser.add_argument(f"--{switch}", action="store_true")
    for name, default in choices.items():
        parser.add_argument(f"--{name.replace('_', '-')}", default=default, type=type(default))
    return parser.parse_args()


def model(n_classes):
    """Classifies by a coarse copy of the image, with the same weights in every run."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return torch.nn.Sequential(
            torch.nn.AdaptiveAvgPool2d(8),
            torch.nn.Flatten(),
            torch.nn.Linear(3 * 8 * 8, n_classes),
        )
