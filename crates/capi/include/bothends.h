/* bothends: feeds training jobs from both ends of an epoch.
 *
 * Made by cbindgen from crates/capi/src; changes belong there.
 *
 * A loader gives epochs, and an epoch gives batches. Handles are opaque. Release each one
 * once, in any order, with the function for its kind. Any thread may use any handle, except
 * that no other thread may be inside a call on a handle while it is released.
 * `const` means that the handle stays valid, not that nothing happens.
 *
 *     be_loader_open -> be_loader_begin -> be_epoch_next, be_batch_release -> be_epoch_close
 *                                       -> be_loader_close
 *
 * A function returns a negative value on an error; be_last_error() then says in one line what
 * happened and what helps. NULL for a handle or a result is such an error, never a crash.
 * Results are written only on success; handles and text are NULL otherwise. After fork(), calls
 * in the child on handles of the parent return BE_ERROR_FORKED at once; create the loader after
 * the fork. */

#ifndef BOTHENDS_H
#define BOTHENDS_H

#include <stddef.h>
#include <stdint.h>

// Version of this interface: it grows by one when a program compiled with an older header
// would no longer work.
#define BE_ABI_VERSION 1

// As `timeout_ms`: wait forever.
#define BE_FOREVER UINT32_MAX

// What a function returns. Negative values are errors; `be_last_error` has the details.
enum be_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Done.
  BE_OK = 0,
  // There is a batch.
  BE_BATCH = 1,
  // No batch within the time given; ask again.
  BE_PENDING = 2,
  // The epoch has no more batches.
  BE_END = 3,
  // `be_epoch_cancel` cancelled the epoch, which may have had more batches.
  BE_STOPPED = 4,
  // An argument is NULL, not UTF-8 or out of range.
  BE_ERROR_ARGUMENT = -1,
  // An option is unknown, or options, recipe and data do not fit together.
  BE_ERROR_OPTIONS = -2,
  // The data cannot be opened, listed or read.
  BE_ERROR_DATA = -3,
  // A sample cannot be read or decoded and `on_bad` is `raise`.
  BE_ERROR_SAMPLE = -4,
  // A device cannot be reached, refuses, or made different bytes than the host.
  BE_ERROR_DEVICE = -5,
  // The consumer holds so many batches that the epoch cannot continue.
  BE_ERROR_STARVED = -6,
  // The epoch ended with an error that was reported to one of its consumers.
  BE_ERROR_ENDED = -7,
  // The handle was created before this process was forked.
  BE_ERROR_FORKED = -8,
  // The state belongs to another run, or cannot be saved now.
  BE_ERROR_STATE = -9,
  // The system refuses memory or threads.
  BE_ERROR_SYSTEM = -10,
  // A bug in this library; please report it.
  BE_ERROR_BUG = -11,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum be_status be_status;
#else
typedef int32_t be_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Element type of a batch.
enum be_dtype
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Unsigned bytes, 0 to 255.
  BE_U8 = 0,
  // IEEE 754 binary32, normalised.
  BE_F32 = 1,
  // IEEE 754 binary16, normalised.
  BE_F16 = 2,
  // bfloat16, normalised.
  BE_BF16 = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum be_dtype be_dtype;
#else
typedef int32_t be_dtype;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Order of a sample's dimensions.
enum be_layout
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Rows, columns, channels.
  BE_NHWC = 0,
  // Channels, rows, columns.
  BE_NCHW = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum be_layout be_layout;
#else
typedef int32_t be_layout;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What the values of a field are.
enum be_field_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Bytes.
  BE_FIELD_BYTES = 0,
  // Text in UTF-8, without a zero byte at its end.
  BE_FIELD_TEXT = 1,
  // Bytes that are 0 or 1.
  BE_FIELD_BOOL = 2,
  // `uint8_t`.
  BE_FIELD_U8 = 3,
  // `int8_t`.
  BE_FIELD_I8 = 4,
  // `uint16_t`.
  BE_FIELD_U16 = 5,
  // `int16_t`.
  BE_FIELD_I16 = 6,
  // `uint32_t`.
  BE_FIELD_U32 = 7,
  // `int32_t`.
  BE_FIELD_I32 = 8,
  // `uint64_t`.
  BE_FIELD_U64 = 9,
  // `int64_t`.
  BE_FIELD_I64 = 10,
  // IEEE 754 binary16.
  BE_FIELD_F16 = 11,
  // IEEE 754 binary32.
  BE_FIELD_F32 = 12,
  // IEEE 754 binary64.
  BE_FIELD_F64 = 13,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum be_field_kind be_field_kind;
#else
typedef int32_t be_field_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A kind of device that a batch's bytes are on; the numbers are DLPack's.
enum be_device_type
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Host memory, pinned or not.
  BE_CPU = 1,
  // An NVIDIA GPU's memory.
  BE_CUDA = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum be_device_type be_device_type;
#else
typedef int32_t be_device_type;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A batch held by the consumer. `be_batch_release` returns its memory.
typedef struct be_batch be_batch;

// An epoch that was begun. Each consumer may call from its own thread.
typedef struct be_epoch be_epoch;

// Feeds a training loop with one epoch after another. Any thread may call any function on it.
typedef struct be_loader be_loader;

// Where a view is in every sample, and its size.
typedef struct {
  // From the sample's first byte to the view's.
  size_t offset_bytes;
  // Rows.
  uint32_t height;
  // Columns.
  uint32_t width;
  // Channels.
  uint32_t channels;
} be_view;

// A field of a batch: the values of all rows. What it points to is valid until the batch is released.
typedef struct {
  // Its name in UTF-8.
  const char *name;
  // A `be_field_kind`.
  int32_t kind;
  // Sides of the array that each row's value is, 0 for one number: the values of all rows are one array then.
  // -1 if rows have values of different lengths, and for bytes and text.
  int32_t n_dims;
  // The sides; NULL if there are none.
  const uint32_t *dims;
  // All values, one after the other, at a multiple of 8.
  const void *data;
  // Bytes of all values.
  size_t len_bytes;
  // Where each row's value begins in `data`, in bytes, and where the last one ends: rows + 1 numbers. A masked
  // row has zeros where all values have the same sides, else nothing.
  const uint64_t *offsets;
} be_field;

// Where a batch's bytes are.
typedef struct {
  // A `be_device_type`.
  int32_t kind;
  // Its number: for a GPU, among those that the process can see; otherwise 0.
  int32_t number;
} be_device;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The message of this thread's last error: one line with a remedy, empty before the first one.
// It is valid until the next failing call by this thread.
const char *be_last_error(void);

// The library's version, as in `0.1.0`. Never released.
const char *be_version(void);

// The `BE_ABI_VERSION` that the library was built with; a program's own must be the same.
uint32_t be_abi_version(void);

// Releases text returned by a function of this library. NULL is ignored.
//
// # Safety
// `text` comes from a function here that says so, and is not used afterwards.
void be_text_release(char *text);

// Opens the data, reserves memory, starts and connects devices. `options_json` is one object,
// such as `{"data": "/data/train", "recipe": "imagenet-train"}`; blocks on the file system
// and the network. An unknown key is an error. `data` and `recipe` are required; the others have their defaults in
// parentheses:
//
// * `data`: path or URL of the data set, or an object with several to mix. `recipe`: a built-in recipe's name, a
//   file, or the recipe itself as an object.
// * `batch_size` (64), `seed` (0), `limit` (all samples), `repeat` (1).
// * `shuffle` (true): false keeps the order of the data.
// * `fields` (none): a list of names of further fields of the samples, see `be_batch_field`.
// * `workers` (`"auto"`): a number of threads; `"auto"` is one per core, divided by the ranks on this machine.
// * `strategy` (`"ordered"`): or `"relaxed"`, `"mte"`, `"wrr"`, `"cpu"`, `"csd"`.
// * `objective` (`"throughput"`): or `"energy"`, `"host-cpu-cap=P"`.
// * `csds` (none): a list of devices, each as `--csd` of `bothends run` takes it. `require_devices` (false),
//   `key_file`, `tls_ca`, `tls_cert`, `tls_key` (none) and `insecure` (false) are for reaching them.
// * `job` (none), `priority` (0), `share` (1): the training job, for agents that several jobs share.
// * `output` (`"u8"`): or `"f32"`, `"f16"`, `"bf16"`. `layout` (`"nhwc"`): or `"nchw"`.
// * `rank` (0) of `world_size` (1): they are not detected, so give both if several processes share an epoch.
// * `last` (`"drop"`): or `"pad"`, which is the default of `bothends run`, `"wrap"`, `"even"`.
// * `on_bad` (`"raise"`): or `"skip"`, `"replace"`, `"zero"`.
// * `audit` (1): the percentage of the devices' batches of which the host remakes rows and compares them.
// * `memory` (as much as is useful, up to an eighth of what is available): MiB that batches may take.
// * `held_batches` (1): batches that the caller may hold at once.
// * `reader` (`"auto"`): or `"io_uring"`, `"pread"`. `page_cache` (`"auto"`): or `"through"`, `"past"`.
// * `side_index` (`"auto"`): or `"beside"`, `"off"`.
// * `cache_size` (`"auto"`): or `"off"`, or bytes, also with a unit as in `"50G"`.
// * `cache` (none): a directory for records fetched from a remote store, and for shards that have to be
//   decompressed, during which the first call blocks for as long as it takes to read and write all data.
// * `fetch_requests` (256), `fetch_reorder` (by memory): for remote data, the most requests in flight, and the most
//   bytes requested and not yet with the workers, also as in `"256M"`.
// * `fetch_patience` (120): seconds for which a remote store that has answered before may be gone.
// * `device` (`"cpu"`): `"cuda:0"` delivers batches in that GPU's memory, see `be_batch_device`.
// * `pin_memory` (false): true pins batches in host memory for the caller's copies.
//
// # Safety
// `options_json` ends with a zero byte.
be_status be_loader_open(const char *options_json,
                         be_loader **out);

// Begins the next epoch for `consumers` consumers, each of which gets as many batches as the
// others: the epoch that `be_loader_set_epoch` named, else the one after the last that
// delivered a batch. An epoch that was begun before is cancelled. Does not wait for a batch.
be_status be_loader_begin(const be_loader *loader,
                          uint32_t consumers,
                          be_epoch **out);

// Chooses the next epoch.
be_status be_loader_set_epoch(const be_loader *loader, uint32_t epoch);

// The current epoch; the next one after its end.
be_status be_loader_epoch(const be_loader *loader, uint32_t *out);

// The position of the consumers, as text of at most 1 kB (with strategy `ordered`): batches that
// were taken count, batches that are ready do not. Release it with `be_text_release`.
be_status be_loader_state(const be_loader *loader,
                          char **out);

// Continues from a state of this or another process, also with a different number of workers,
// devices or ranks. The current epoch is cancelled. The text must be as `be_loader_state` wrote it, byte
// for byte; damage to one of version 1, which has no checksum, may go unnoticed.
//
// # Safety
// `state` ends with a zero byte.
be_status be_loader_load_state(const be_loader *loader,
                               const char *state);

// The number of batches that each of `consumers` gets in a whole epoch.
be_status be_loader_n_batches(const be_loader *loader, uint32_t consumers, uint32_t *out);

// The number of samples of the data set, repetitions included.
be_status be_loader_n_samples(const be_loader *loader, uint64_t *out);

// The number of named classes: labels are below it. 0 if the data have none.
be_status be_loader_n_classes(const be_loader *loader, size_t *out);

// The name of a class by its label. Release it with `be_text_release`.
be_status be_loader_class_name(const be_loader *loader, size_t label, char **out);

// Counters as a JSON object: of the epochs that are over, and the batches that the running one
// has delivered. Release it with `be_text_release`.
be_status be_loader_stats(const be_loader *loader,
                          char **out);

// Ends the current epoch, the devices and the threads, and releases the loader. NULL is
// ignored. Its batches and epochs may be released later.
void be_loader_close(be_loader *loader);

// The next batch of `consumer` (from 0), waiting for it no longer than `timeout_ms`
// milliseconds; 0 does not wait, `BE_FOREVER` has no limit. Returns `BE_BATCH`
// with the batch in `out`, `BE_PENDING`, `BE_END`, `BE_STOPPED`, or an error, after which the epoch has
// ended: `BE_ERROR_OPTIONS` if the loader began another epoch meanwhile, or was closed. It goes on after
// `BE_ERROR_ARGUMENT`, and on a GPU after `BE_ERROR_STARVED`, once a batch has been released.
// `be_epoch_cancel` ends the wait.
// Release every batch with `be_batch_release`.
be_status be_epoch_next(const be_epoch *epoch,
                        uint32_t consumer,
                        uint32_t timeout_ms,
                        be_batch **out);

// Cancels what is left of the epoch: calls to `be_epoch_next`, current and later ones, return
// `BE_STOPPED` within a tenth of a second. Any thread or signal handler may call it: it sets a flag
// and nothing else. NULL is ignored. The loader still knows how far its consumers have come:
// `be_loader_state` says where to continue. Release the epoch with `be_epoch_close` nevertheless.
void be_epoch_cancel(const be_epoch *epoch);

// Cancels what is left of the epoch and releases it; no thread may be inside `be_epoch_next`.
// NULL is ignored. The loader still knows how far its consumers have come. Batches of
// it may be released later.
void be_epoch_close(be_epoch *epoch);

// The first byte of the first sample, at a multiple of 4096 (on a GPU, of 256): samples follow each
// other, `be_batch_sample_bytes` apart, or where `be_batch_row_offsets` says. A masked row is a black image,
// normalised like all others, or an empty file. It is valid, and never written to, until the batch is released. If `be_batch_device` says that the batch is
// on a GPU, it is an address there. NULL if `batch` is.
const void *be_batch_data(const be_batch *batch);

// Bytes of all rows; 0 when `batch` is NULL.
size_t be_batch_len_bytes(const be_batch *batch);

// Bytes of one sample, all its views; 0 where rows have their own lengths (`be_batch_row_offsets`), and when `batch`
// is NULL.
size_t be_batch_sample_bytes(const be_batch *batch);

// Rows, masked ones included: the batch size, or fewer if bad samples were skipped. 0
// when `batch` is NULL.
size_t be_batch_n_rows(const be_batch *batch);

// Rows that hold a sample; they come before the masked ones. 0 when `batch` is NULL.
size_t be_batch_n_valid(const be_batch *batch);

// A class for each row; -1 in a masked one. Valid until the batch is released.
const int64_t *be_batch_labels(const be_batch *batch);

// A sample's number for each row; `UINT64_MAX` in a masked one. Valid until the batch is
// released.
const uint64_t *be_batch_sample_ids(const be_batch *batch);

// The number of the data set of a mix that each row's sample is of, as they stand in `data`; 0
// without a mix, -1 in a masked row. Valid until the batch is released.
const int32_t *be_batch_sources(const be_batch *batch);

// 1 for each row that holds a sample, 0 for a masked one (`last` is "pad" or "even"). Valid until
// the batch is released.
const uint8_t *be_batch_mask(const be_batch *batch);

// Views of each sample: 1 unless the recipe makes more. 0 where rows are files (`be_batch_row_offsets`), and when
// `batch` is NULL.
size_t be_batch_n_views(const be_batch *batch);

// Where view number `view` (from 0) is in every sample, and its size.
be_status be_batch_view(const be_batch *batch, size_t view, be_view *out);

// The elements' type, a `be_dtype`; or a negative `be_status`.
int32_t be_batch_dtype(const be_batch *batch);

// The order of a sample's dimensions, a `be_layout`; or a negative `be_status`.
int32_t be_batch_layout(const be_batch *batch);

// Who made the batch: 0 the host, n the n-th of `csds`, counted from 1; or a negative
// `be_status`. For statistics only: the bytes do not depend on it.
int32_t be_batch_prong(const be_batch *batch);

// Writes a soft label for each row to `out`: rows x `n_classes` floats, 1 at the row's class,
// or the shares of the two classes that it was mixed from (`mixup`, `cutmix`). Masked rows get
// zeros, and so do rows without a label (-1); a label outside `n_classes` is
// `BE_ERROR_OPTIONS`. `len` is the number of floats in `out`, which must be exactly that.
//
// # Safety
// `out` has room for `len` floats.
be_status be_batch_soft_labels(const be_batch *batch,
                               size_t n_classes,
                               float *out,
                               size_t len);

// Returns the memory of the batch; on a GPU, once the streams that it was lent to have finished what is
// enqueued there now. NULL is ignored. Any thread may do it, also after the epoch or the loader has been
// closed.
void be_batch_release(be_batch *batch);

// Fields of the batch: as many as were named in the option `fields`, in that order. 0 when `batch` is NULL.
size_t be_batch_n_fields(const be_batch *batch);

// Field number `nth` (from 0). Fields are in host memory, wherever the samples are.
be_status be_batch_field(const be_batch *batch, size_t nth, be_field *out);

// With the recipe `raw`, whose rows are files: where each row begins in `be_batch_data`, in bytes, and where the last
// one ends, rows + 1 numbers; valid until the batch is released. NULL where all samples have the same length, and
// if `batch` is.
const uint64_t *be_batch_row_offsets(const be_batch *batch);

// Where the batch's bytes are, and so what `be_batch_data` points to. On a GPU (`device` in the options)
// the host must not dereference that address, and neither must GPU code before `be_batch_lend`.
be_status be_batch_device(const be_batch *batch,
                          be_device *out);

// Hands a batch on a GPU to a stream of that GPU. Work enqueued there from now on sees the batch
// complete, and the batch's memory is not reused until everything that is enqueued there before
// the batch is released has run. It does not wait, and may be called for several streams. A batch in
// host memory needs nothing done. `stream` is a `CUstream` or `cudaStream_t`; NULL is the legacy default
// stream, and `CU_STREAM_PER_THREAD` that of the calling thread.
//
// # Safety
// The stream belongs to the batch's GPU, and is not destroyed before the batch has been released.
be_status be_batch_lend(const be_batch *batch,
                        void *stream);

// Releases the batch, as `be_batch_release` does, once what is enqueued on `stream` now has run: its
// memory is not reused before that, and the caller does not wait. Use it for a batch on a GPU, and for one
// in pinned host memory (`pin_memory`) from which a copy was enqueued. `stream` is as in
// `be_batch_lend`. The batch is released whatever this returns. A NULL batch is ignored.
//
// # Safety
// The stream belongs to the GPU that the loader's options name.
be_status be_batch_release_after(be_batch *batch,
                                 void *stream);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BOTHENDS_H */
