/* libjpeg-turbo's decoder for the peer: the whole image, or no more than a box of it.
 *
 * Settings are the library's own (accurate IDCT, fancy upsampling), output is RGB. One decoder
 * is made per thread and used again. A box is decoded with a margin of one column, and of two
 * rows above: upsampling looks at neighbours, and without them pixels at the edge of the box
 * would not be those of the whole image. */
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <jpeglib.h>

struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf on_error;
    unsigned char *pixels;
    size_t capacity;
};

/* What has been decoded: its size, and the place of its first pixel in the image. */
struct decoded {
    const unsigned char *pixels;
    unsigned width, height, left, top;
};

#define TEXT(x) TEXT_(x)
#define TEXT_(x) #x

const char *libjpeg_version(void) { return TEXT(LIBJPEG_TURBO_VERSION); }

static void give_up(j_common_ptr jpeg) {
    longjmp(((struct decoder *)jpeg->client_data)->on_error, 1);
}

static void be_silent(j_common_ptr jpeg) { (void)jpeg; }

struct decoder *decoder_new(void) {
    struct decoder *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->jpeg.err = jpeg_std_error(&d->errors);
    d->errors.error_exit = give_up;
    d->errors.output_message = be_silent;
    jpeg_create_decompress(&d->jpeg);
    d->jpeg.client_data = d;
    return d;
}

void decoder_free(struct decoder *d) {
    jpeg_destroy_decompress(&d->jpeg);
    free(d->pixels);
    free(d);
}

static int rows(struct decoder *d, unsigned from, unsigned to, struct decoded *out) {
    size_t stride = (size_t)d->jpeg.output_width * 3;
    size_t need = stride * (to - from);
    if (need > d->capacity) {
        free(d->pixels);
        d->pixels = malloc(need);
        d->capacity = d->pixels ? need : 0;
        if (!d->pixels) return 0;
    }
    while (d->jpeg.output_scanline < to) {
        unsigned char *row[16];
        unsigned y = d->jpeg.output_scanline, n = to - y < 16 ? to - y : 16;
        for (unsigned i = 0; i < n; i++) row[i] = d->pixels + (y - from + i) * stride;
        jpeg_read_scanlines(&d->jpeg, row, n);
    }
    out->pixels = d->pixels;
    out->width = d->jpeg.output_width;
    out->height = to - from;
    out->top = from;
    return 1;
}

/* Decodes all of a file; 0 if that fails. */
int decode_full(struct decoder *d, const unsigned char *file, size_t len,
                struct decoded *out) {
    if (setjmp(d->on_error)) {
        jpeg_abort_decompress(&d->jpeg);
        return 0;
    }
    jpeg_mem_src(&d->jpeg, (unsigned char *)file, len);
    jpeg_read_header(&d->jpeg, TRUE);
    d->jpeg.out_color_space = JCS_RGB;
    jpeg_start_decompress(&d->jpeg);
    out->left = 0;
    if (!rows(d, 0, d->jpeg.output_height, out)) return 0;
    jpeg_finish_decompress(&d->jpeg);
    return 1;
}

/* Decodes what the box (top, left, height, width) needs; 0 if that fails. */
int decode_region(struct decoder *d, const unsigned char *file, size_t len,
                  const unsigned *box, struct decoded *out) {
    if (setjmp(d->on_error)) {
        jpeg_abort_decompress(&d->jpeg);
        return 0;
    }
    jpeg_mem_src(&d->jpeg, (unsigned char *)file, len);
    jpeg_read_header(&d->jpeg, TRUE);
    d->jpeg.out_color_space = JCS_RGB;
    jpeg_start_decompress(&d->jpeg);
    unsigned left = box[1] > 0 ? box[1] - 1 : 0, right = box[1] + box[3] + 1;
    if (right > d->jpeg.output_width) right = d->jpeg.output_width;
    JDIMENSION x = left, width = right - left;
    jpeg_crop_scanline(&d->jpeg, &x, &width);
    unsigned top = box[0] > 2 ? box[0] - 2 : 0;
    if (top > 0) jpeg_skip_scanlines(&d->jpeg, top);
    out->left = x;
    if (!rows(d, top, box[0] + box[2], out)) return 0;
    jpeg_abort_decompress(&d->jpeg);
    return 1;
}
