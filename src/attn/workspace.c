/* SPDX-License-Identifier: MIT
 *
 * workspace.c: making and freeing workspaces and plans, and the buffers that they grow by. Buffers
 * keep their content when they grow and never shrink, so a step like the one before takes no
 * memory. */
#include "attn/workspace.h"

#include <string.h>
#include <unistd.h>

#include "base/error.h"

bool buffer_grow(const struct pkv_hooks *hooks, struct buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->bytes) {
        return true;
    }
    const size_t half_more = buffer->bytes + buffer->bytes / 2;
    const size_t wanted = bytes > half_more ? bytes : half_more;
    void *memory = hooks_alloc_array(hooks, wanted, 1);
    if (memory == NULL) {
        return false;
    }
    if (buffer->memory != NULL) {
        memcpy(memory, buffer->memory, buffer->bytes);
    }
    buffer_free(hooks, buffer);
    *buffer = (struct buffer){memory, wanted};
    return true;
}

void buffer_free(const struct pkv_hooks *hooks, struct buffer *buffer)
{
    hooks_free_array(hooks, buffer->memory, buffer->bytes, 1);
    *buffer = (struct buffer){NULL, 0};
}

static enum pkv_status no_memory(void)
{
    return refuse(PKV_NO_MEMORY, "no memory for attention scratch");
}

enum pkv_status pkv_workspace_create(int num_threads, enum pkv_isa isa,
                                     const struct pkv_hooks *hooks, pkv_workspace **workspace)
{
    struct pkv_hooks copied;
    if (workspace == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "workspace is NULL");
    }
    if (num_threads < 0 || num_threads > MAX_THREADS) {
        return refuse(PKV_INVALID_ARGUMENT, "num_threads = %d, outside [0, %d]", num_threads,
                      MAX_THREADS);
    }
    if ((int)isa < PKV_ISA_BEST || (int)isa > PKV_ISA_AVX512BF16) {
        return refuse(PKV_INVALID_ARGUMENT, "isa = %d is none", (int)isa);
    }
    const enum pkv_status status = hooks_copy(hooks, &copied);
    if (status != PKV_OK) {
        return status;
    }
    const struct kernels *kernels = kernels_for(isa);
    if (kernels == NULL) {
        return refuse(PKV_UNSUPPORTED, "isa %s is not in this build or on this CPU",
                      pkv_isa_name(isa));
    }
    pkv_workspace *created = hooks_alloc_array(&copied, 1, sizeof *created);
    if (created == NULL) {
        return no_memory();
    }
    created->hooks = copied;
    created->kernels = kernels;
    created->owner = getpid();
    created->num_threads = num_threads > 0 ? num_threads : gqa_default_threads();
    created->workers =
        hooks_alloc_array(&copied, (size_t)created->num_threads, sizeof created->workers[0]);
    if (created->workers == NULL || pkv_plan_create(created, &created->plan) != PKV_OK) {
        pkv_workspace_destroy(created);
        return no_memory();
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
    pkv_plan_destroy(workspace->plan);
    buffer_free(&hooks, &workspace->partials);
    buffer_free(&hooks, &workspace->scratch);
    buffer_free(&hooks, &workspace->keys);
    buffer_free(&hooks, &workspace->shim);
    buffer_free(&hooks, &workspace->stamps);
    buffer_free(&hooks, &workspace->writers);
    hooks_free_array(&hooks, workspace->workers, (size_t)workspace->num_threads,
                     sizeof workspace->workers[0]);
    hooks_free_array(&hooks, workspace, 1, sizeof *workspace);
}

enum pkv_isa pkv_workspace_isa(const pkv_workspace *workspace)
{
    return workspace != NULL ? workspace->kernels->isa : PKV_ISA_SCALAR;
}

int pkv_workspace_num_threads(const pkv_workspace *workspace)
{
    return workspace != NULL ? workspace->num_threads : 0;
}

enum pkv_status pkv_plan_create(pkv_workspace *workspace, pkv_plan **plan)
{
    if (workspace == NULL || plan == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "%s is NULL", workspace == NULL ? "workspace" : "plan");
    }
    pkv_plan *created = hooks_alloc_array(&workspace->hooks, 1, sizeof *created);
    if (created == NULL) {
        return no_memory();
    }
    created->workspace = workspace;
    *plan = created;
    return PKV_OK;
}

void pkv_plan_destroy(pkv_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    const struct pkv_hooks *hooks = &plan->workspace->hooks;
    if (plan->workspace->started == plan) {
        plan->workspace->started = NULL;
    }
    buffer_free(hooks, &plan->rows);
    buffer_free(hooks, &plan->appends);
    buffer_free(hooks, &plan->units);
    buffer_free(hooks, &plan->folds);
    buffer_free(hooks, &plan->shares);
    buffer_free(hooks, &plan->sources);
    buffer_free(hooks, &plan->members);
    buffer_free(hooks, &plan->order);
    buffer_free(hooks, &plan->kin);
    buffer_free(hooks, &plan->chains);
    buffer_free(hooks, &plan->first_units);
    hooks_free_array(hooks, plan, 1, sizeof *plan);
}
