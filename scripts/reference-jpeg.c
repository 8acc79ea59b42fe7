/* What libjpeg makes of JPEG files: the independent reference of scripts/compare-jpeg.
 *
 * Reads paths, one a line, and prints a line for each, with tabs between the columns:
 *
 *     path  width  height  pixels  planes  flags...
 *     path  error  libjpeg's own words
 *
 * Decoded is by libjpeg's defaults: accurate integer transform ("islow"), "fancy" upsampling.
 * Pixels and planes are digests (FNV-1a, 64 bits): of the RGB bytes, where four inks become RGB
 * as in Pillow, which takes all of them as inverted; and of the components one behind the
 * other, each at its own resolution, before upsampling and colour. Flags tell what a decoder
 * may refuse: "arithmetic", "components" (neither one nor three nor four), "incomplete" (a
 * progressive file without all bits of all coefficients), "warning: " with libjpeg's words.
 */
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

struct errors {
    struct jpeg_error_mgr base; /* first, so that libjpeg's pointer is ours */
    jmp_buf failed;
    char warning[JMSG_LENGTH_MAX]; /* the first one; empty: none */
};

static void fail(j_common_ptr cinfo)
{
    longjmp(((struct errors *)cinfo->err)->failed, 1);
}

static void note(j_common_ptr cinfo, int level)
{
    struct errors *errors = (struct errors *)cinfo->err;
    if (level < 0 && errors->warning[0] == '\0')
        cinfo->err->format_message(cinfo, errors->warning);
}

static uint64_t digest(uint64_t sum, const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001B3);
    return sum;
}

/* The share of light that each inverted ink lets through; in place. */
static void narrow(uint8_t *row, size_t width)
{
    for (size_t x = 0; x < width; x++) {
        int light = row[4 * x + 3];
        for (int c = 0; c < 3; c++) {
            int product = (255 - row[4 * x + c]) * light + 128;
            int left = light - ((product + (product >> 8)) >> 8);
            row[3 * x + c] = left < 0 ? 0 : left;
        }
    }
}

static int is_incomplete(const struct jpeg_decompress_struct *cinfo)
{
    if (!cinfo->progressive_mode)
        return 0;
    for (int c = 0; c < cinfo->num_components; c++)
        for (int k = 0; k < DCTSIZE2; k++)
            if (cinfo->coef_bits[c][k] != 0)
                return 1;
    return 0;
}

#define EMPTY UINT64_C(0xCBF29CE484222325) /* the digest of nothing */

/* Decodes to pixels. Rows belong to libjpeg's pool. */
static uint64_t pixels(struct jpeg_decompress_struct *cinfo)
{
    if (cinfo->jpeg_color_space == JCS_CMYK || cinfo->jpeg_color_space == JCS_YCCK)
        cinfo->out_color_space = JCS_CMYK;
    else if (cinfo->jpeg_color_space != JCS_UNKNOWN)
        cinfo->out_color_space = JCS_RGB;
    jpeg_start_decompress(cinfo);
    uint64_t sum = EMPTY;
    size_t width = cinfo->output_width, n_bytes = width * cinfo->output_components;
    JSAMPARRAY row = (*cinfo->mem->alloc_sarray)((j_common_ptr)cinfo, JPOOL_IMAGE, n_bytes, 1);
    while (cinfo->output_scanline < cinfo->output_height) {
        jpeg_read_scanlines(cinfo, row, 1);
        if (cinfo->output_components == 4)
            narrow(row[0], width);
        sum = digest(sum, row[0], cinfo->output_components == 4 ? width * 3 : n_bytes);
    }
    return sum;
}

/* Decodes to planes: an MCU row at a time, of which only real rows and columns count. */
static uint64_t planes(struct jpeg_decompress_struct *cinfo)
{
    uint8_t *planes[MAX_COMPONENTS];
    JSAMPARRAY rows[MAX_COMPONENTS];
    cinfo->out_color_space = cinfo->jpeg_color_space;
    cinfo->raw_data_out = TRUE;
    jpeg_start_decompress(cinfo);
    for (int c = 0; c < cinfo->num_components; c++) {
        jpeg_component_info *info = &cinfo->comp_info[c];
        size_t area = (size_t)info->downsampled_width * info->downsampled_height;
        planes[c] = (*cinfo->mem->alloc_large)((j_common_ptr)cinfo, JPOOL_IMAGE, area);
        rows[c] = (*cinfo->mem->alloc_sarray)((j_common_ptr)cinfo, JPOOL_IMAGE,
                                              info->width_in_blocks * DCTSIZE,
                                              info->v_samp_factor * DCTSIZE);
    }
    for (JDIMENSION mcu_row = 0; cinfo->output_scanline < cinfo->output_height; mcu_row++) {
        jpeg_read_raw_data(cinfo, rows, cinfo->max_v_samp_factor * DCTSIZE);
        for (int c = 0; c < cinfo->num_components; c++) {
            jpeg_component_info *info = &cinfo->comp_info[c];
            JDIMENSION n_rows = info->v_samp_factor * DCTSIZE, first = mcu_row * n_rows;
            for (JDIMENSION y = 0; y < n_rows && first + y < info->downsampled_height; y++)
                memcpy(planes[c] + (size_t)(first + y) * info->downsampled_width, rows[c][y],
                       info->downsampled_width);
        }
    }
    uint64_t sum = EMPTY;
    for (int c = 0; c < cinfo->num_components; c++) {
        jpeg_component_info *info = &cinfo->comp_info[c];
        sum = digest(sum, planes[c], (size_t)info->downsampled_width * info->downsampled_height);
    }
    return sum;
}

static void tell(const char *path, FILE *file)
{
    struct jpeg_decompress_struct cinfo;
    struct errors errors;
    cinfo.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = fail;
    errors.base.emit_message = note;
    errors.warning[0] = '\0';
    jpeg_create_decompress(&cinfo);
    if (setjmp(errors.failed)) {
        char words[JMSG_LENGTH_MAX];
        cinfo.err->format_message((j_common_ptr)&cinfo, words);
        printf("%s\terror\t%s\n", path, words);
        jpeg_destroy_decompress(&cinfo);
        return;
    }
    uint64_t sums[2];
    for (int raw = 0; raw < 2; raw++) {
        rewind(file);
        jpeg_stdio_src(&cinfo, file);
        jpeg_read_header(&cinfo, TRUE);
        sums[raw] = raw ? planes(&cinfo) : pixels(&cinfo);
        if (!raw)
            jpeg_abort_decompress(&cinfo);
    }
    int incomplete = is_incomplete(&cinfo);
    jpeg_finish_decompress(&cinfo);
    printf("%s\t%u\t%u\t%016llx\t%016llx", path, cinfo.output_width, cinfo.output_height,
           (unsigned long long)sums[0], (unsigned long long)sums[1]);
    printf("%s%s%s", cinfo.arith_code ? "\tarithmetic" : "",
           cinfo.jpeg_color_space == JCS_UNKNOWN ? "\tcomponents" : "",
           incomplete ? "\tincomplete" : "");
    if (errors.warning[0])
        printf("\twarning: %s", errors.warning);
    putchar('\n');
    jpeg_destroy_decompress(&cinfo);
}

int main(void)
{
    char path[4096];
    while (fgets(path, sizeof path, stdin)) {
        path[strcspn(path, "\n")] = '\0';
        FILE *file = fopen(path, "rb");
        if (!file) {
            perror(path);
            return EXIT_FAILURE;
        }
        tell(path, file);
        fclose(file);
    }
    return EXIT_SUCCESS;
}
