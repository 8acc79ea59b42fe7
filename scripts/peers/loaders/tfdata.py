"""TensorFlow's tf.data on the processor: its own recipe for ImageNet.

Settings: `decode_and_crop_jpeg`, which decodes only what the box needs; as many parallel calls
and threads as workers, one thread each; samples in any order (`deterministic=False`); two
batches ahead. `tf.image.resize` does not antialias by default, and so not here.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf  # noqa: E402

from loaders import AHEAD, MEAN, SIDE, STD, Opened, files  # noqa: E402


def sample(path, label):
    jpeg = tf.io.read_file(path)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.image.extract_jpeg_shape(jpeg),
        tf.zeros([1, 0, 4]),
        aspect_ratio_range=[3 / 4, 4 / 3],
        area_range=[0.08, 1.0],
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    box = tf.concat([begin[:2], size[:2]], 0)
    image = tf.image.decode_and_crop_jpeg(
        jpeg, box, channels=3, dct_method="INTEGER_ACCURATE"
    )
    image = tf.image.resize(image, [SIDE, SIDE], "bilinear")
    image = tf.image.random_flip_left_right(image)
    shift = tf.constant([255 * mean for mean in MEAN])
    scale = tf.constant([1 / (255 * std) for std in STD])
    return tf.transpose((image - shift) * scale, [2, 0, 1]), label


def opened(_name, options):
    paths, labels = map(list, zip(*files(options.data), strict=True))

    def make():
        data = tf.data.Dataset.from_tensor_slices((paths, labels))
        data = data.shuffle(len(paths)).repeat()
        data = data.map(sample, num_parallel_calls=options.workers, deterministic=False)
        data = data.batch(options.batch_size, drop_remainder=True).prefetch(AHEAD)
        how = tf.data.Options()
        how.threading.private_threadpool_size = options.workers
        how.threading.max_intra_op_parallelism = 1
        how.deterministic = False
        return iter(data.with_options(how))

    return Opened(make, f"tensorflow {tf.__version__}", False, "TensorFlow")
