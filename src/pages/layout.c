/* SPDX-License-Identifier: MIT
 *
 * The arithmetic of page stores: every count is checked for its range and every product for
 * overflow here, once, and nothing of a layout changes afterwards. O(1), no memory. */
#include "pages/layout.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/sized.h"

static enum pkv_status check_count(const char *name, int32_t count)
{
    if (count < 1) {
        return INVALID("geometry.%s = %d, below 1", name, count);
    }
    return PKV_OK;
}

static enum pkv_status check_dtype(const char *name, enum pkv_dtype dtype)
{
    if (pkv_dtype_bytes(dtype) == 0) {
        return refuse(PKV_UNSUPPORTED, "geometry.%s = %d, not a known type", name, (int)dtype);
    }
    return PKV_OK;
}

static enum pkv_status check_counts(const struct pkv_page_geometry *geometry)
{
    const struct {
        const char *name;
        int32_t count;
    } counts[] = {
        {"num_layers", geometry->num_layers}, {"num_blocks", geometry->num_blocks},
        {"kv_heads", geometry->kv_heads},     {"block_size", geometry->block_size},
        {"k_width", geometry->k_width},
    };
    enum pkv_status status = PKV_OK;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && status == PKV_OK; i++) {
        status = check_count(counts[i].name, counts[i].count);
    }
    return status;
}

/* The geometry as it will be kept. */
static enum pkv_status resolve(const struct pkv_page_geometry *given,
                               struct pkv_page_geometry *geometry)
{
    const enum pkv_status sized = sized_read("geometry", given, v_dtype, geometry);
    if (sized != PKV_OK) {
        return sized;
    }
    if (geometry->v_width == 0) {
        geometry->v_width = geometry->k_width;
    }
    enum pkv_status status = check_counts(geometry);
    if (status == PKV_OK) {
        status = check_count("v_width", geometry->v_width);
    }
    if (status == PKV_OK && geometry->v_in_k && geometry->v_width > geometry->k_width) {
        status = INVALID("geometry.v_width = %d, above k_width = %d", geometry->v_width,
                         geometry->k_width);
    }
    if (status == PKV_OK) {
        status = check_dtype("k_dtype", geometry->k_dtype);
    }
    if (status == PKV_OK && !geometry->v_in_k) {
        status = check_dtype("v_dtype", geometry->v_dtype);
    }
    return status;
}

static bool make_part(const struct pkv_page_geometry *geometry, int32_t width, enum pkv_dtype dtype,
                      struct page_part *part)
{
    size_t block_bytes = 0;
    size_t bytes = 0;
    part->element_bytes = pkv_dtype_bytes(dtype);
    part->cell_stride = (size_t)width;
    if (!checked_mul(part->cell_stride, (size_t)geometry->block_size, &part->head_stride) ||
        !checked_mul(part->head_stride, (size_t)geometry->kv_heads, &part->block_stride) ||
        !checked_mul(part->block_stride, part->element_bytes, &block_bytes) ||
        !checked_mul(block_bytes, (size_t)geometry->num_blocks, &bytes) ||
        !checked_add(bytes, LAYOUT_PART_ALIGNMENT - 1, &bytes)) {
        return false;
    }
    part->part_bytes = bytes / LAYOUT_PART_ALIGNMENT * LAYOUT_PART_ALIGNMENT;
    return true;
}

/* The unpadded products are no larger than the padded one, which is checked. */
static bool make_sizes(struct page_layout *layout)
{
    const struct pkv_page_geometry *geometry = &layout->geometry;
    struct pkv_page_sizes *sizes = &layout->sizes;
    size_t layer_bytes = 0;
    if (!checked_add(layout->k.part_bytes, layout->v.part_bytes, &layer_bytes) ||
        !checked_mul(layer_bytes, (size_t)geometry->num_layers, &sizes->payload_bytes)) {
        return false;
    }
    sizes->layer_block_bytes = layout->k.block_stride * layout->k.element_bytes +
                               layout->v.block_stride * layout->v.element_bytes;
    sizes->block_bytes = sizes->layer_block_bytes * (size_t)geometry->num_layers;
    sizes->token_bytes = sizes->block_bytes / (size_t)geometry->block_size;
    return true;
}

enum pkv_status page_layout_make(const struct pkv_page_geometry *geometry,
                                 struct page_layout *layout)
{
    struct page_layout made = {0};
    const enum pkv_status status = resolve(geometry, &made.geometry);
    if (status != PKV_OK) {
        return status;
    }
    const struct pkv_page_geometry *kept = &made.geometry;
    if (!make_part(kept, kept->k_width, kept->k_dtype, &made.k) ||
        (!kept->v_in_k && !make_part(kept, kept->v_width, kept->v_dtype, &made.v)) ||
        !make_sizes(&made)) {
        return INVALID("geometry: the payload's bytes overflow size_t");
    }
    *layout = made;
    return PKV_OK;
}

enum pkv_status pkv_page_sizes_of(const struct pkv_page_geometry *geometry,
                                  struct pkv_page_sizes *sizes)
{
    struct page_layout layout;
    enum pkv_status status = sized_check("sizes", sizes, struct pkv_page_sizes, payload_bytes);
    if (status == PKV_OK) {
        status = page_layout_make(geometry, &layout);
    }
    if (status == PKV_OK) {
        sized_fill(sizes, &layout.sizes);
    }
    return status;
}
