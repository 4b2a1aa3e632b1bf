/* SPDX-License-Identifier: MIT
 *
 * server: an HTTP server for one lm, with continuous batching on a pkv_cache (engine.h). The
 * first line on stdout says where it listens. SIGINT and SIGTERM end it: requests in flight get an
 * error, and the exit status is 1 if a block was still held. */
#include "engine.h"
#include "http.h"
#include "language_model.h"
#include "options.h"
#include "report.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>

const char program_name[] = "server";

/* Threads made later inherit the mask, so that the signals are left to wait_for_end. */
static void block_signals(sigset_t *signals)
{
    sigemptyset(signals);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, signals, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static bool serve(const struct language_model *lm, const struct options *options,
                  const sigset_t *signals)
{
    struct engine *engine = NULL;
    struct http *http = NULL;
    int number = 0;
    if (!engine_start(lm, &options->engine, &engine)) {
        return false;
    }
    if (!http_start(lm, engine, &options->http, &http)) {
        engine_close(engine);
        engine_free(engine);
        return false;
    }
    printf("%s on http://%s:%d\n", lm->name, options->http.address, http_port(http));
    fflush(stdout);
    sigwait(signals, &number);
    http_quiesce(http);
    engine_close(engine);
    http_stop(http);
    return engine_free(engine);
}

int main(int argc, char **argv)
{
    struct options options;
    struct language_model lm;
    sigset_t signals;
    if (!options_parse(argc, argv, &options)) {
        return 1;
    }
    if (options.help) {
        fputs(usage, stdout);
        return 0;
    }
    block_signals(&signals);
    if (!language_model_open(options.model, &lm)) {
        return 1;
    }
    if (options.engine.max_seq_len > 0 && options.engine.max_seq_len < lm.model.seq_len) {
        lm.model.seq_len = options.engine.max_seq_len;
    }
    options.engine.max_seq_len = lm.model.seq_len;
    const bool ok = serve(&lm, &options, &signals);
    language_model_close(&lm);
    return ok ? 0 : 1;
}
