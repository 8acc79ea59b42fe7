"""bothends, from this checkout.

  bothends          bothends.torch.DataLoader over the data set and transforms of `pillow`
  bothends-loader   bothends.Loader with the built-in recipe imagenet-train (exact numerics, as
                    above), as NumPy arrays, so that torch is not imported

Settings: the defaults, with as many worker threads as asked. From its first epoch on it has a side index of the
images next to them, which no other loader has a kind of. Both antialias.
"""

import bothends

from loaders import Opened, endless


def opened(name, options):
    if name == "bothends":
        from bothends.torch import DataLoader
        from loaders import pytorch

        data = pytorch.data_set(options.data, "pillow")
        version = f"bothends {bothends.__version__}, {pytorch.version('tensor')}"
        settings = {"shuffle": True, "num_workers": options.workers, "drop_last": True}

        def make():
            return endless(DataLoader(data, options.batch_size, **settings))

        return Opened(make, version, True, "torch")
    settings = {"batch_size": options.batch_size, "workers": options.workers}

    def make():
        loader = bothends.Loader(options.data, "imagenet-train", framework="numpy", **settings)
        return endless(loader)

    return Opened(make, f"bothends {bothends.__version__}", True, "NumPy")
