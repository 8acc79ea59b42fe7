// A training loop: softmax regression on the mean colours of images. It stops and goes on.
//
//   train DATA CHECKPOINT [BATCHES]
//
// DATA is a folder of class folders. CHECKPOINT is where training goes on when the file is
// there, and where it is written; with BATCHES training stops after so many. However often it
// is stopped, the last checkpoint is the same.
//
//   cc -std=c11 train.c $(pkg-config --cflags --libs bothends) -lm -o train

#include <bothends.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EPOCHS = 2, FEATURES = 4, BATCH_SIZE = 8, MOST_CLASSES = 1000, LONGEST_STATE = 4096 };

typedef struct {
    size_t n_classes;
    double weights[MOST_CLASSES][FEATURES];
    double loss;
    size_t n_seen;
} model;

// Every function of the library answers a code; one line is enough for all of them.
static be_status need(be_status status) {
    if (status < 0) {
        fprintf(stderr, "error: %s\n", be_last_error());
        exit(1);
    }
    return status;
}

static void fail(const char *what, const char *of) {
    fprintf(stderr, "error: %s %s\n", what, of);
    exit(1);
}

static be_loader *open_loader(const char *data) {
    char options[4096];
    if (strpbrk(data, "\"\\") != NULL) {
        fail("no quotes or backslashes, please:", data);
    }
    int len = snprintf(options, sizeof options,
                       "{\"data\": \"%s\", \"recipe\": \"imagenet-train\", \"batch_size\": %d,"
                       " \"seed\": 3, \"last\": \"pad\", \"output\": \"f32\","
                       " \"layout\": \"nchw\"}",
                       data, (int)BATCH_SIZE);
    if (len < 0 || (size_t)len >= sizeof options) {
        fail("too long:", data);
    }
    be_loader *loader;
    need(be_loader_open(options, &loader));
    return loader;
}

// The mean of each colour, and 1 for the bias.
static void features_of(const float *sample, size_t plane, double *features) {
    for (size_t channel = 0; channel < FEATURES - 1; channel++) {
        double sum = 0;
        for (size_t i = 0; i < plane; i++) {
            sum += sample[channel * plane + i];
        }
        features[channel] = sum / (double)plane;
    }
    features[FEATURES - 1] = 1;
}

static void learn_from(model *m, const double *features, size_t label) {
    double scores[MOST_CLASSES], sum = 0;
    for (size_t c = 0; c < m->n_classes; c++) {
        scores[c] = 0;
        for (size_t f = 0; f < FEATURES; f++) {
            scores[c] += m->weights[c][f] * features[f];
        }
        scores[c] = exp(scores[c]);
        sum += scores[c];
    }
    for (size_t c = 0; c < m->n_classes; c++) {
        double error = scores[c] / sum - (c == label);
        for (size_t f = 0; f < FEATURES; f++) {
            m->weights[c][f] -= 0.05 * error * features[f];
        }
    }
    m->loss -= log(scores[label] / sum);
    m->n_seen++;
}

static void train(model *m, const be_batch *batch) {
    be_view view;
    need(be_batch_view(batch, 0, &view));
    const float *data = be_batch_data(batch);
    const int64_t *labels = be_batch_labels(batch);
    size_t stride = be_batch_sample_bytes(batch) / sizeof *data;
    for (size_t row = 0; row < be_batch_n_valid(batch); row++) {
        double features[FEATURES];
        features_of(data + row * stride, (size_t)view.height * view.width, features);
        learn_from(m, features, (size_t)labels[row]);
    }
}

// The loader's state is one line of text; the weights are this program's own.
static void save(const model *m, const be_loader *loader, const char *path) {
    char *state;
    need(be_loader_state(loader, &state));
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        fail("cannot write", path);
    }
    fprintf(file, "%s\n%a %zu\n", state, m->loss, m->n_seen);
    for (size_t c = 0; c < m->n_classes; c++) {
        for (size_t f = 0; f < FEATURES; f++) {
            fprintf(file, "%a\n", m->weights[c][f]);
        }
    }
    if (fclose(file) != 0) {
        fail("cannot write", path);
    }
    be_text_release(state);
}

static void resume(model *m, const be_loader *loader, const char *path) {
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return; // nothing to go on from
    }
    char state[LONGEST_STATE];
    if (fgets(state, sizeof state, file) == NULL) {
        fail("cannot read", path);
    }
    int n_read = fscanf(file, "%la %zu", &m->loss, &m->n_seen);
    for (size_t c = 0; n_read > 0 && c < m->n_classes; c++) {
        for (size_t f = 0; n_read > 0 && f < FEATURES; f++) {
            n_read = fscanf(file, "%la", &m->weights[c][f]);
        }
    }
    fclose(file);
    if (n_read <= 0) {
        fail("this is no checkpoint:", path);
    }
    need(be_loader_load_state(loader, state));
}

// One epoch, or what is left of it; false when `*n_left` batches were used up first.
static int run_epoch(model *m, const be_loader *loader, size_t *n_left) {
    be_epoch *epoch;
    uint32_t number;
    int is_whole = 1;
    need(be_loader_epoch(loader, &number));
    need(be_loader_begin(loader, 1, &epoch));
    be_batch *batch;
    while (need(be_epoch_next(epoch, 0, BE_FOREVER, &batch)) == BE_BATCH) {
        train(m, batch);
        be_batch_release(batch);
        if (--*n_left == 0) {
            is_whole = 0;
            break;
        }
    }
    be_epoch_close(epoch);
    if (is_whole && m->n_seen > 0) {
        printf("epoch %u: loss %.4f\n", number, m->loss / (double)m->n_seen);
        m->loss = 0;
        m->n_seen = 0;
    }
    return is_whole;
}

int main(int n_arguments, char **arguments) {
    if (n_arguments != 3 && n_arguments != 4) {
        fprintf(stderr, "usage: train DATA CHECKPOINT [BATCHES]\n");
        return 2;
    }
    if (be_abi_version() != BE_ABI_VERSION) {
        fail("compiled with another header than that of bothends", be_version());
    }
    const char *checkpoint = arguments[2];
    size_t n_left = n_arguments == 4 ? strtoul(arguments[3], NULL, 10) : SIZE_MAX;
    be_loader *loader = open_loader(arguments[1]);
    model *m = calloc(1, sizeof *m);
    if (m == NULL) {
        fail("no memory for", "the model");
    }
    need(be_loader_n_classes(loader, &m->n_classes));
    if (m->n_classes == 0 || m->n_classes > MOST_CLASSES) {
        fail("too few or too many classes in", arguments[1]);
    }
    resume(m, loader, checkpoint);
    uint32_t next;
    do {
        need(be_loader_epoch(loader, &next));
    } while (next < EPOCHS && run_epoch(m, loader, &n_left));
    save(m, loader, checkpoint);
    be_loader_close(loader);
    free(m);
    return 0;
}
