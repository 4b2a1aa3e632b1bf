/* SPDX-License-Identifier: MIT
 *
 * One rule for admission, its probe, begin and its dry run, so that what one of them foresees is
 * what the other answers. No side effect: a refusal that nobody reads (a row that may be left out)
 * costs no text. */
#include "runtime/shortage.h"

#include <stdio.h>

#include "base/error.h"
#include "base/sized.h"

enum pkv_status shortage_check(const struct pkv_shortage *shortage)
{
    return shortage != NULL ? sized_check("shortage", shortage, struct pkv_shortage, quota)
                            : PKV_OK;
}

void shortage_fill(const struct shortage_demand *demand, struct pkv_shortage *shortage)
{
    *shortage = (struct pkv_shortage){
        .row = demand->row,
        .group = demand->group,
        .need = demand->total > demand->limit ? demand->total : demand->more,
        .free = demand->available > 0 ? demand->available : 0,
        .quota = demand->group == SHORTAGE_NO_GROUP ? demand->limit : 0,
    };
}

enum pkv_status shortage_refuse(const struct pkv_cache_config *config, enum pkv_status status,
                                const struct pkv_shortage *shortage)
{
    const long long need = (long long)shortage->need;
    const long long num_free = (long long)shortage->free;
    char row[24] = "";
    if (shortage->row != SHORTAGE_NO_ROW) {
        snprintf(row, sizeof row, "row %d: ", shortage->row);
    }
    if (shortage->group == SHORTAGE_NO_GROUP) {
        return refuse(status, "%s%lld blocks needed, %lld left of the namespace's quota of %lld",
                      row, need, num_free, (long long)shortage->quota);
    }
    if (status != PKV_NEVER_FITS) {
        return refuse(status, "%sgroup %d: %lld blocks needed, %lld free", row, shortage->group,
                      need, num_free);
    }
    const int32_t num_blocks = config->groups[shortage->group].num_blocks;
    if (shortage->row == SHORTAGE_NO_ROW) {
        return refuse(status, "group %d: %lld blocks needed, it has %d, watermark %d",
                      shortage->group, need, num_blocks, config->watermark_blocks);
    }
    return refuse(status, "%sgroup %d: %lld blocks needed, it has %d", row, shortage->group, need,
                  num_blocks);
}
