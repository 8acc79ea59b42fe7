// What every function answers to NULL, to nonsense, in any order of releases, and in a fork.
// `doors null DATA`, `doors order DATA`, `doors fork DATA`, `doors cancel DATA`; silence and 0
// when all is well. `doors fields DATA`, with tests/fixtures/shards/fields-mds; `doors gpu DATA`, where libcuda is a stub whose device memory is the host's.

#define _POSIX_C_SOURCE 200809L

#include <bothends.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// A line that does not hold ends the program and says where.
#define HOLDS(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition,            \
                    be_last_error());                                                      \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

// A call that fails with this code and a line that holds this part.
#define REFUSED(call, code, part) HOLDS((call) == (code) && strstr(be_last_error(), (part)))

static be_loader *open_loader(const char *data, const char *more) {
    char options[4096];
    snprintf(options, sizeof options,
             "{\"data\": \"%s\", \"recipe\": \"imagenet-eval\", \"limit\": 7,"
             " \"batch_size\": 2, \"last\": \"pad\"%s}",
             data, more);
    be_loader *loader;
    HOLDS(be_loader_open(options, &loader) == BE_OK);
    return loader;
}

// Handles that are not there.
static void no_handle(void) {
    be_loader *loader = (be_loader *)&loader;
    be_epoch *epoch;
    be_batch *batch;
    be_view view;
    char *text;
    uint32_t number;
    uint64_t many;
    size_t size;
    float floats[2];
    REFUSED(be_loader_open(NULL, &loader), BE_ERROR_ARGUMENT, "`options_json` is NULL");
    HOLDS(loader == NULL);
    REFUSED(be_loader_open("{}", NULL), BE_ERROR_ARGUMENT, "`out` is NULL");
    REFUSED(be_loader_begin(NULL, 1, &epoch), BE_ERROR_ARGUMENT, "`loader` is NULL");
    REFUSED(be_loader_set_epoch(NULL, 1), BE_ERROR_ARGUMENT, "`loader` is NULL");
    REFUSED(be_loader_epoch(NULL, &number), BE_ERROR_ARGUMENT, "`loader` is NULL");
    REFUSED(be_loader_state(NULL, &text), BE_ERROR_ARGUMENT, "`loader` is NULL");
    REFUSED(be_loader_load_state(NULL, "{}"), BE_ERROR_ARGUMENT, "`loader` is NULL");
    REFUSED(be_loader_n_batches(NULL, 1, &number), BE_ERROR_ARGUMENT, "`loader` is NULL");
    REFUSED(be_loader_n_samples(NULL, &many), BE_ERROR_ARGUMENT, "`loader` is NULL");
    REFUSED(be_loader_n_classes(NULL, &size), BE_ERROR_ARGUMENT, "`loader` is NULL");
    REFUSED(be_loader_class_name(NULL, 0, &text), BE_ERROR_ARGUMENT, "`loader` is NULL");
    REFUSED(be_loader_stats(NULL, &text), BE_ERROR_ARGUMENT, "`loader` is NULL");
    REFUSED(be_epoch_next(NULL, 0, 0, &batch), BE_ERROR_ARGUMENT, "`epoch` is NULL");
    REFUSED(be_batch_view(NULL, 0, &view), BE_ERROR_ARGUMENT, "`batch` is NULL");
    REFUSED(be_batch_soft_labels(NULL, 1, floats, 2), BE_ERROR_ARGUMENT, "`batch` is NULL");
    REFUSED(be_batch_dtype(NULL), BE_ERROR_ARGUMENT, "`batch` is NULL");
    REFUSED(be_batch_layout(NULL), BE_ERROR_ARGUMENT, "`batch` is NULL");
    REFUSED(be_batch_prong(NULL), BE_ERROR_ARGUMENT, "`batch` is NULL");
    be_device device;
    REFUSED(be_batch_device(NULL, &device), BE_ERROR_ARGUMENT, "`batch` is NULL");
    REFUSED(be_batch_lend(NULL, NULL), BE_ERROR_ARGUMENT, "`batch` is NULL");
    HOLDS(be_batch_release_after(NULL, NULL) == BE_OK);
    HOLDS(be_batch_data(NULL) == NULL && be_batch_labels(NULL) == NULL);
    HOLDS(be_batch_sample_ids(NULL) == NULL && be_batch_sources(NULL) == NULL);
    HOLDS(be_batch_mask(NULL) == NULL);
    HOLDS(be_batch_n_rows(NULL) == 0 && be_batch_n_valid(NULL) == 0);
    HOLDS(be_batch_len_bytes(NULL) == 0 && be_batch_sample_bytes(NULL) == 0);
    HOLDS(be_batch_n_views(NULL) == 0);
    be_field field;
    REFUSED(be_batch_field(NULL, 0, &field), BE_ERROR_ARGUMENT, "`batch` is NULL");
    HOLDS(be_batch_n_fields(NULL) == 0 && be_batch_row_offsets(NULL) == NULL);
    be_text_release(NULL);
    be_batch_release(NULL);
    be_epoch_cancel(NULL);
    be_epoch_close(NULL);
    be_loader_close(NULL);
}

// A connection that lacks an option is told of by the option's name.
static void device_options(const char *data) {
    char options[4096];
    static const char format[] = "{\"data\": \"%s\", \"recipe\": \"imagenet-eval\", \"limit\": 7,"
                                 " \"batch_size\": 2, \"last\": \"pad\", \"csds\": [\"%s\"]}";
    be_loader *none;
    snprintf(options, sizeof options, format, data, "tcp://192.0.2.1:7070");
    REFUSED(be_loader_open(options, &none), BE_ERROR_DEVICE, "or `insecure` on both");
    snprintf(options, sizeof options, format, data, "tls://192.0.2.1:7070");
    REFUSED(be_loader_open(options, &none), BE_ERROR_DEVICE,
            "three PEM files: `tls_ca`, `tls_cert` and `tls_key`");
}

// Results that have no place, and arguments out of range.
static void no_sense(const char *data) {
    be_loader *none;
    REFUSED(be_loader_open("{", &none), BE_ERROR_OPTIONS, "the options are not JSON");
    REFUSED(be_loader_open("\xff", &none), BE_ERROR_ARGUMENT, "is not UTF-8");
    REFUSED(be_loader_open("{\"data\": \"/no/where\", \"recipe\": \"raw\"}", &none),
            BE_ERROR_DATA, "/no/where");
    device_options(data);
    be_loader *loader = open_loader(data, "");
    be_epoch *epoch;
    be_batch *batch;
    be_view view;
    char *text;
    float floats[2];
    REFUSED(be_loader_begin(loader, 1, NULL), BE_ERROR_ARGUMENT, "`out` is NULL");
    REFUSED(be_loader_begin(loader, 0, &epoch), BE_ERROR_OPTIONS, "0 consumers");
    REFUSED(be_loader_epoch(loader, NULL), BE_ERROR_ARGUMENT, "`out` is NULL");
    REFUSED(be_loader_state(loader, NULL), BE_ERROR_ARGUMENT, "`out` is NULL");
    REFUSED(be_loader_stats(loader, NULL), BE_ERROR_ARGUMENT, "`out` is NULL");
    REFUSED(be_loader_n_batches(loader, 1, NULL), BE_ERROR_ARGUMENT, "`out` is NULL");
    REFUSED(be_loader_n_samples(loader, NULL), BE_ERROR_ARGUMENT, "`out` is NULL");
    REFUSED(be_loader_n_classes(loader, NULL), BE_ERROR_ARGUMENT, "`out` is NULL");
    REFUSED(be_loader_class_name(loader, 0, NULL), BE_ERROR_ARGUMENT, "`out` is NULL");
    REFUSED(be_loader_class_name(loader, 99, &text), BE_ERROR_ARGUMENT, "`label` is 99");
    HOLDS(text == NULL);
    REFUSED(be_loader_load_state(loader, NULL), BE_ERROR_ARGUMENT, "`state` is NULL");
    REFUSED(be_loader_load_state(loader, "{}"), BE_ERROR_STATE, "be_loader_state");
    HOLDS(be_loader_begin(loader, 2, &epoch) == BE_OK);
    REFUSED(be_epoch_next(epoch, 0, 0, NULL), BE_ERROR_ARGUMENT, "`out` is NULL");
    REFUSED(be_epoch_next(epoch, 2, 0, &batch), BE_ERROR_ARGUMENT, "`consumer` is 2");
    HOLDS(batch == NULL);
    HOLDS(be_epoch_next(epoch, 0, BE_FOREVER, &batch) == BE_BATCH);
    REFUSED(be_batch_view(batch, 1, &view), BE_ERROR_ARGUMENT, "`view` is 1");
    REFUSED(be_batch_view(batch, 0, NULL), BE_ERROR_ARGUMENT, "`out` is NULL");
    REFUSED(be_batch_soft_labels(batch, 1, NULL, 2), BE_ERROR_ARGUMENT, "`out` is NULL");
    REFUSED(be_batch_soft_labels(batch, 2, floats, 2), BE_ERROR_ARGUMENT, "2 rows x 2");
    REFUSED(be_loader_state(loader, &text), BE_ERROR_STATE, "different numbers of batches");
    be_batch_release(batch);
    be_epoch_close(epoch);
    be_loader_close(loader);
}

// What a whole batch says of itself.
static void look(const be_batch *batch, size_t n_classes) {
    be_view view;
    HOLDS(be_batch_view(batch, 0, &view) == BE_OK && be_batch_n_views(batch) == 1);
    HOLDS(view.offset_bytes == 0 && view.channels == 3);
    HOLDS(be_batch_dtype(batch) == BE_U8 && be_batch_layout(batch) == BE_NHWC);
    HOLDS(be_batch_prong(batch) == 0);
    size_t sample_bytes = (size_t)view.height * view.width * view.channels;
    HOLDS(be_batch_sample_bytes(batch) == sample_bytes);
    HOLDS(be_batch_len_bytes(batch) == 2 * sample_bytes && be_batch_n_rows(batch) == 2);
    const uint8_t *data = be_batch_data(batch);
    const uint8_t *mask = be_batch_mask(batch);
    float *labels = malloc(2 * n_classes * sizeof *labels);
    HOLDS(labels != NULL);
    HOLDS(be_batch_soft_labels(batch, n_classes, labels, 2 * n_classes) == BE_OK);
    size_t n_valid = 0;
    for (size_t row = 0; row < 2; row++) {
        uint64_t sum = 0;
        for (size_t i = 0; i < sample_bytes; i++) {
            sum += data[row * sample_bytes + i];
        }
        int64_t label = be_batch_labels(batch)[row];
        n_valid += mask[row];
        if (mask[row]) {
            HOLDS(sum > 0 && label >= 0 && be_batch_sample_ids(batch)[row] < 7);
            HOLDS(labels[row * n_classes + (size_t)label] == 1);
        } else {
            HOLDS(sum == 0 && label == -1 && be_batch_sample_ids(batch)[row] == UINT64_MAX);
        }
    }
    free(labels);
    HOLDS(n_valid == be_batch_n_valid(batch));
}

// A whole epoch without a wait, then handles released in the worst order.
static void any_order(const char *data) {
    be_loader *loader = open_loader(data, "");
    be_epoch *epoch;
    be_batch *batch;
    char *text;
    uint32_t n_batches, number;
    uint64_t n_samples;
    size_t n_classes, n_rows = 0;
    HOLDS(be_loader_n_samples(loader, &n_samples) == BE_OK && n_samples == 7);
    HOLDS(be_loader_n_classes(loader, &n_classes) == BE_OK && n_classes > 0);
    HOLDS(be_loader_class_name(loader, 0, &text) == BE_OK && strlen(text) > 0);
    be_text_release(text);
    HOLDS(be_loader_n_batches(loader, 1, &n_batches) == BE_OK && n_batches == 4);
    HOLDS(be_loader_set_epoch(loader, 5) == BE_OK);
    HOLDS(be_loader_begin(loader, 1, &epoch) == BE_OK);
    HOLDS(be_loader_epoch(loader, &number) == BE_OK && number == 5);
    for (;;) {
        be_status status = be_epoch_next(epoch, 0, 0, &batch);
        if (status == BE_END) {
            break;
        }
        HOLDS(status == BE_PENDING || status == BE_BATCH);
        HOLDS((status == BE_BATCH) == (batch != NULL));
        if (batch != NULL) {
            look(batch, n_classes);
            n_rows += be_batch_n_valid(batch);
            be_batch_release(batch);
        }
    }
    HOLDS(n_rows == 7);
    be_epoch_close(epoch);
    HOLDS(be_loader_stats(loader, &text) == BE_OK && strstr(text, "\"front_batches\":4"));
    be_text_release(text);

    be_batch *kept;
    HOLDS(be_loader_begin(loader, 2, &epoch) == BE_OK);
    HOLDS(be_epoch_next(epoch, 1, BE_FOREVER, &kept) == BE_BATCH);
    HOLDS(be_epoch_next(epoch, 0, BE_FOREVER, &batch) == BE_BATCH);
    HOLDS(be_loader_state(loader, &text) == BE_OK && strstr(text, "\"position\":4"));
    be_loader_close(loader);
    be_batch *none;
    HOLDS(be_epoch_next(epoch, 0, BE_FOREVER, &none) == BE_ERROR_OPTIONS && none == NULL);
    be_batch_release(batch);
    be_epoch_close(epoch);
    look(kept, n_classes);
    be_batch_release(kept);
    loader = open_loader(data, ", \"workers\": 2");
    HOLDS(be_loader_load_state(loader, text) == BE_OK);
    HOLDS(be_loader_begin(loader, 1, &epoch) == BE_OK);
    for (n_rows = 0; be_epoch_next(epoch, 0, BE_FOREVER, &batch) == BE_BATCH;) {
        n_rows += be_batch_n_valid(batch);
        be_batch_release(batch);
    }
    HOLDS(n_rows == 3);
    be_loader_close(loader);
    be_epoch_close(epoch);
    be_text_release(text);
}

// Nothing of a parent's works in its child, and nothing waits there.
static void in_a_fork(const char *data) {
    be_loader *loader = open_loader(data, "");
    be_epoch *epoch, *none;
    be_batch *batch, *other;
    char *text;
    HOLDS(be_loader_begin(loader, 1, &epoch) == BE_OK);
    HOLDS(be_epoch_next(epoch, 0, BE_FOREVER, &batch) == BE_BATCH);
    pid_t child = fork();
    HOLDS(child >= 0);
    if (child == 0) {
        alarm(10); // a wait would end by this
        REFUSED(be_epoch_next(epoch, 0, BE_FOREVER, &other), BE_ERROR_FORKED, "after the fork");
        REFUSED(be_loader_begin(loader, 1, &none), BE_ERROR_FORKED, "after the fork");
        REFUSED(be_loader_state(loader, &text), BE_ERROR_FORKED, "after the fork");
        REFUSED(be_loader_set_epoch(loader, 3), BE_ERROR_FORKED, "after the fork");
        HOLDS(be_batch_n_rows(batch) == 2 && be_batch_data(batch) != NULL);
        be_batch_release(batch);
        be_epoch_close(epoch);
        be_loader_close(loader);
        loader = open_loader(data, ""); // its own works
        HOLDS(be_loader_begin(loader, 1, &epoch) == BE_OK);
        HOLDS(be_epoch_next(epoch, 0, BE_FOREVER, &batch) == BE_BATCH);
        be_batch_release(batch);
        be_epoch_close(epoch);
        be_loader_close(loader);
        _exit(0);
    }
    int status;
    HOLDS(waitpid(child, &status, 0) == child && status == 0);
    size_t n_classes;
    HOLDS(be_loader_n_classes(loader, &n_classes) == BE_OK);
    look(batch, n_classes);
    be_batch_release(batch);
    for (int n_batches = 1; n_batches < 4; n_batches++) {
        HOLDS(be_epoch_next(epoch, 0, BE_FOREVER, &batch) == BE_BATCH);
        be_batch_release(batch);
    }
    HOLDS(be_epoch_next(epoch, 0, BE_FOREVER, &batch) == BE_END);
    be_epoch_close(epoch);
    be_loader_close(loader);
}

static be_epoch *running;

static void asked_to_end(int signal) {
    (void)signal;
    be_epoch_cancel(running);
}

// A signal comes while a consumer waits for a batch that does not come.
static void cancelled(const char *data) {
    be_loader *loader = open_loader(data, ", \"limit\": 12");
    be_batch *batch, *none;
    char *text;
    HOLDS(be_loader_begin(loader, 2, &running) == BE_OK);
    HOLDS(be_epoch_next(running, 0, BE_FOREVER, &batch) == BE_BATCH);
    be_batch_release(batch);
    HOLDS(be_epoch_next(running, 0, BE_FOREVER, &batch) == BE_BATCH);
    be_batch_release(batch);
    struct sigaction action = {.sa_handler = asked_to_end, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    alarm(1);
    // The other does not come for its batch, and holds this one up.
    HOLDS(be_epoch_next(running, 0, BE_FOREVER, &none) == BE_STOPPED && none == NULL);
    HOLDS(be_epoch_next(running, 1, BE_FOREVER, &none) == BE_STOPPED && none == NULL);
    HOLDS(be_loader_state(loader, &text) == BE_ERROR_STATE); // one has taken more
    be_epoch_close(running);
    HOLDS(be_loader_begin(loader, 1, &running) == BE_OK);
    HOLDS(be_epoch_next(running, 0, BE_FOREVER, &batch) == BE_BATCH);
    be_batch_release(batch);
    be_epoch_cancel(running);
    HOLDS(be_epoch_next(running, 0, 0, &none) == BE_STOPPED);
    HOLDS(be_loader_state(loader, &text) == BE_OK && strstr(text, "\"position\":2"));
    be_text_release(text);
    be_epoch_close(running);
    be_loader_close(loader);
}

// The next batch of one consumer.
static be_batch *next(const be_epoch *epoch) {
    be_batch *batch;
    HOLDS(be_epoch_next(epoch, 0, BE_FOREVER, &batch) == BE_BATCH);
    return batch;
}

// The values of a row, which follow from the number of its sample (scripts/golden-shards); none in a masked one.
static void look_at_fields(const be_batch *batch, size_t row) {
    be_field caption, score, size, mask;
    HOLDS(be_batch_field(batch, 0, &caption) == BE_OK && caption.kind == BE_FIELD_TEXT);
    HOLDS(be_batch_field(batch, 1, &score) == BE_OK && score.kind == BE_FIELD_F32);
    HOLDS(be_batch_field(batch, 2, &size) == BE_OK && size.kind == BE_FIELD_I32);
    HOLDS(be_batch_field(batch, 3, &mask) == BE_OK && mask.kind == BE_FIELD_BYTES);
    HOLDS(strcmp(caption.name, "caption") == 0 && strcmp(mask.name, "mask") == 0);
    HOLDS(caption.n_dims == -1 && mask.n_dims == -1 && mask.dims == NULL);
    HOLDS(score.n_dims == 0 && score.dims == NULL);
    HOLDS(size.n_dims == 2 && size.dims[0] == 2 && size.dims[1] == 3);
    size_t n_rows = be_batch_n_rows(batch);
    HOLDS(score.len_bytes == n_rows * sizeof(float) && score.offsets[n_rows] == score.len_bytes);
    HOLDS(size.len_bytes == n_rows * 6 * sizeof(int32_t));
    uint64_t sample = be_batch_sample_ids(batch)[row];
    const int32_t *sides = (const int32_t *)size.data + 6 * row;
    size_t mask_len = mask.offsets[row + 1] - mask.offsets[row];
    size_t caption_len = caption.offsets[row + 1] - caption.offsets[row];
    if (sample == UINT64_MAX) {
        HOLDS(((const float *)score.data)[row] == 0 && sides[5] == 0);
        HOLDS(mask_len == 0 && caption_len == 0);
        return;
    }
    HOLDS(((const float *)score.data)[row] == (float)sample / 4);
    HOLDS(sides[0] == (int32_t)sample && sides[5] == (int32_t)sample);
    HOLDS(mask_len == 10 * sample + 1);
    HOLDS(((const uint8_t *)mask.data)[mask.offsets[row]] == sample);
    HOLDS(caption_len == sample % 3 * strlen("num\xc4\x83r 0"));
}

// Further fields of samples, and files as they are.
static void fields(const char *data) {
    be_loader *loader = open_loader(
        data, ", \"fields\": [\"caption\", \"score\", \"size\", \"mask\"]");
    be_epoch *epoch;
    be_field field;
    HOLDS(be_loader_begin(loader, 1, &epoch) == BE_OK);
    size_t n_samples = 0;
    for (be_batch *batch; be_epoch_next(epoch, 0, BE_FOREVER, &batch) == BE_BATCH;) {
        HOLDS(be_batch_n_fields(batch) == 4 && be_batch_row_offsets(batch) == NULL);
        REFUSED(be_batch_field(batch, 4, &field), BE_ERROR_ARGUMENT, "the batch has 4 fields");
        REFUSED(be_batch_field(batch, 0, NULL), BE_ERROR_ARGUMENT, "`out` is NULL");
        for (size_t row = 0; row < be_batch_n_rows(batch); row++) {
            look_at_fields(batch, row);
        }
        n_samples += be_batch_n_valid(batch);
        be_batch_release(batch);
    }
    HOLDS(n_samples == 7);
    be_epoch_close(epoch);
    be_loader_close(loader);
    char options[4096];
    snprintf(options, sizeof options,
             "{\"data\": \"%s\", \"recipe\": \"raw\", \"batch_size\": 7, \"shuffle\": false}", data);
    HOLDS(be_loader_open(options, &loader) == BE_OK);
    HOLDS(be_loader_begin(loader, 1, &epoch) == BE_OK);
    be_batch *batch;
    HOLDS(be_epoch_next(epoch, 0, BE_FOREVER, &batch) == BE_BATCH);
    const uint64_t *offsets = be_batch_row_offsets(batch);
    const uint8_t *files = be_batch_data(batch);
    be_view view;
    HOLDS(be_batch_sample_bytes(batch) == 0 && be_batch_n_views(batch) == 0);
    REFUSED(be_batch_view(batch, 0, &view), BE_ERROR_ARGUMENT, "a sample has 0");
    HOLDS(offsets[0] == 0 && offsets[7] == be_batch_len_bytes(batch));
    for (size_t row = 0; row < 7; row++) {
        // A JPEG begins and ends like this.
        HOLDS(files[offsets[row]] == 0xff && files[offsets[row] + 1] == 0xd8);
        HOLDS(files[offsets[row + 1] - 2] == 0xff && files[offsets[row + 1] - 1] == 0xd9);
    }
    be_batch_release(batch);
    be_epoch_close(epoch);
    be_loader_close(loader);
}

// An epoch on a GPU, and one in pinned memory, compared with the same one in host memory.
static void on_a_gpu(const char *data) {
    const char *options[] = {", \"device\": \"cuda:0\"", ", \"pin_memory\": true"};
    be_loader *loader;
    char text[4096];
    snprintf(text, sizeof text, "{\"data\": \"%s\", \"recipe\": \"raw\", \"device\": \"cuda:1\"}",
             data);
    REFUSED(be_loader_open(text, &loader), BE_ERROR_DEVICE, "there is no device 1");
    for (int is_pinned = 0; is_pinned < 2; is_pinned++) {
        loader = open_loader(data, options[is_pinned]);
        be_loader *beside = open_loader(data, "");
        be_epoch *epoch, *on_host;
        HOLDS(be_loader_begin(loader, 1, &epoch) == BE_OK);
        HOLDS(be_loader_begin(beside, 1, &on_host) == BE_OK);
        be_device device;
        for (int n_batches = 0; n_batches < 4; n_batches++) {
            be_batch *batch = next(epoch), *same = next(on_host);
            HOLDS(be_batch_device(batch, &device) == BE_OK && device.number == 0);
            HOLDS(device.kind == (is_pinned ? BE_CPU : BE_CUDA));
            HOLDS(be_batch_device(same, &device) == BE_OK && device.kind == BE_CPU);
            HOLDS(be_batch_lend(batch, NULL) == BE_OK && be_batch_lend(batch, (void *)2) == BE_OK);
            REFUSED(be_batch_lend(is_pinned ? NULL : batch, (void *)0x1234),
                    is_pinned ? BE_ERROR_ARGUMENT : BE_ERROR_DEVICE, "");
            size_t len = be_batch_len_bytes(same);
            HOLDS(be_batch_len_bytes(batch) == len);
            HOLDS(memcmp(be_batch_data(batch), be_batch_data(same), len) == 0);
            HOLDS(be_batch_labels(batch)[0] == be_batch_labels(same)[0]);
            if (n_batches % 2 == 0) {
                HOLDS(be_batch_release_after(batch, NULL) == BE_OK);
            } else {
                be_batch_release(batch);
            }
            HOLDS(be_batch_release_after(same, NULL) == BE_OK);
        }
        char *stats;
        HOLDS(be_loader_stats(loader, &stats) == BE_OK && strstr(stats, "\"path\":\"pinned"));
        be_text_release(stats);
        be_batch *none;
        HOLDS(be_epoch_next(epoch, 0, BE_FOREVER, &none) == BE_END);
        be_epoch_close(epoch);
        be_epoch_close(on_host);
        be_loader_close(loader);
        be_loader_close(beside);
    }
}

int main(int n_arguments, char **arguments) {
    HOLDS(n_arguments == 3);
    HOLDS(strcmp(be_last_error(), "") == 0);
    HOLDS(be_abi_version() == BE_ABI_VERSION && strchr(be_version(), '.') != NULL);
    const char *data = arguments[2];
    if (strcmp(arguments[1], "null") == 0) {
        no_handle();
        no_sense(data);
    } else if (strcmp(arguments[1], "order") == 0) {
        any_order(data);
    } else if (strcmp(arguments[1], "cancel") == 0) {
        cancelled(data);
    } else if (strcmp(arguments[1], "fields") == 0) {
        fields(data);
    } else if (strcmp(arguments[1], "gpu") == 0) {
        on_a_gpu(data);
    } else {
        in_a_fork(data);
    }
    return 0;
}
