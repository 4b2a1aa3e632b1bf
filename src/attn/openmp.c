/* SPDX-License-Identifier: MIT
 *
 * openmp.c: the only file with OpenMP's pragmas. Its runtime is referred to weakly: a build without
 * OpenMP can be part of a process that has it. */
#include "attn/openmp.h"

#include "pagedkv/attn.h"

PKV_WEAK extern int omp_in_parallel(void);
PKV_WEAK extern int omp_get_max_threads(void);

bool openmp_in_parallel(void)
{
    return omp_in_parallel != NULL && omp_in_parallel() != 0;
}

int openmp_max_threads(void)
{
    return omp_get_max_threads != NULL ? omp_get_max_threads() : 0;
}

void pkv_openmp_parallel_for(void *context, int32_t num_tasks, pkv_task_function *task,
                             void *task_context)
{
    (void)context;
#pragma omp parallel for num_threads(num_tasks) schedule(static, 1)
    for (int32_t i = 0; i < num_tasks; i++) {
        task(task_context, i);
    }
}
