/* SPDX-License-Identifier: MIT
 *
 * workspace.c: making and freeing workspaces, and growing what runs need. */
#include "attn/workspace.h"

#include "attn/dispatch.h"
#include "attn/processors.h"
#include "base/checked.h"
#include "base/error.h"

/* Opening a region costs about 1 us while its threads spin, 5 to 20 us once they sleep. */
#define THREAD_NS 10000

static enum pkv_status check_create(int num_threads, enum pkv_isa isa, pkv_workspace **workspace)
{
    if (workspace == NULL) {
        return INVALID("workspace is NULL");
    }
    if (num_threads < 0 || num_threads > MAX_THREADS) {
        return INVALID("num_threads = %d, outside [0, %d]", num_threads, MAX_THREADS);
    }
    if ((int)isa < PKV_ISA_BEST || (int)isa >= PKV_NUM_ISAS) {
        return INVALID("isa = %d is none", (int)isa);
    }
    return PKV_OK;
}

enum pkv_status pkv_workspace_create(int num_threads, enum pkv_isa isa,
                                     const struct pkv_hooks *hooks, pkv_workspace **workspace)
{
    struct pkv_hooks copied;
    enum pkv_status status = check_create(num_threads, isa, workspace);
    if (status == PKV_OK) {
        status = hooks_copy(hooks, &copied);
    }
    if (status != PKV_OK) {
        return status;
    }
    const struct kernels *kernels = dispatch_kernels(isa);
    if (kernels == NULL) {
        return refuse(PKV_UNSUPPORTED, "isa %s is not in this build or on this CPU",
                      pkv_isa_name(isa));
    }
    pkv_workspace *created = hooks_alloc_array(&copied, 1, sizeof *created);
    if (created == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for a workspace");
    }
    created->hooks = copied;
    created->kernels = kernels;
    created->thread_ns = THREAD_NS;
    num_threads = num_threads > 0 ? num_threads : processors_for_team();
    if (!team_create(&created->hooks, num_threads, &created->team) ||
        (created->plan = plan_create(created, &created->hooks, num_threads)) == NULL) {
        pkv_workspace_destroy(created);
        return refuse(PKV_NO_MEMORY, "no memory for a workspace");
    }
    *workspace = created;
    return PKV_OK;
}

void pkv_workspace_destroy(pkv_workspace *workspace)
{
    if (workspace == NULL) {
        return;
    }
    const struct pkv_hooks hooks = workspace->hooks;
    struct buffer *const buffers[] = {
        &workspace->scratch,       &workspace->partials,     &workspace->new_keys,
        &workspace->contract_rows, &workspace->norm_head,    &workspace->id_stamps,
        &workspace->writers,       &workspace->block_scores,
    };
    plan_destroy(workspace->plan);
    team_destroy(&workspace->team);
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        buffer_free(&hooks, buffers[i]);
    }
    hooks_free_array(&hooks, workspace, 1, sizeof *workspace);
}

enum pkv_isa pkv_workspace_isa(const pkv_workspace *workspace)
{
    return workspace != NULL ? workspace->kernels->isa : PKV_ISA_SCALAR;
}

int pkv_workspace_num_threads(const pkv_workspace *workspace)
{
    return workspace != NULL ? workspace->team.num_threads : 0;
}

/* a * b floats. */
static bool grow_floats(pkv_workspace *workspace, struct buffer *buffer, size_t a, size_t b)
{
    size_t bytes = 0;
    return checked_mul(a, b, &bytes) && checked_mul(bytes, sizeof(float), &bytes) &&
           buffer_grow(&workspace->hooks, buffer, bytes);
}

enum pkv_status workspace_reserve(pkv_workspace *workspace, const pkv_plan *plan)
{
    const int num_threads = workspace->team.num_threads;
    if (plan->scratch_floats > workspace->scratch_floats) {
        if (!grow_floats(workspace, &workspace->scratch, plan->scratch_floats,
                         (size_t)num_threads)) {
            return refuse(PKV_NO_MEMORY, "no memory for the scratch of %d threads", num_threads);
        }
        workspace->scratch_floats = plan->scratch_floats;
    }
    const size_t partials = (size_t)plan->num_partials * (size_t)plan->shape.kv_heads;
    if (!grow_floats(workspace, &workspace->partials, partials, plan->partial_floats)) {
        return refuse(PKV_NO_MEMORY, "no memory for %d partial results", plan->num_partials);
    }
    return PKV_OK;
}
