"""Lightning with the loader itself, `bothends.Loader`, passed in or made in the hook."""

import lightning_imagenet
import tiny
import bothends  # bothends

NORMALIZE = {"op": "normalize", "mean": tiny.MEAN, "std": tiny.STD}
CROP = {"op": "random_resized_crop", "size": [tiny.SIZE, tiny.SIZE]}
FLIP = {"op": "random_horizontal_flip", "p": 0.5}
TRAIN = {"version": 1, "name": "train", "ops": [{"op": "decode"}, CROP, FLIP, NORMALIZE]}


def train_loader(args):
    return bothends.Loader(f"{args.data}/train", TRAIN, batch_size=args.batch_size)  # bothends
    return lightning_imagenet.train_loader(args, drop_last=True)


class Hooks(lightning_imagenet.WithHooks):
    def train_dataloader(self):
        return train_loader(self.args)


if __name__ == "__main__":
    lightning_imagenet.main(train_loader, Hooks)
