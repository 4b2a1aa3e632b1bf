/* SPDX-License-Identifier: MIT
 *
 * options.h: the server's command line. */
#ifndef SERVER_OPTIONS_H
#define SERVER_OPTIONS_H

#include "engine.h"
#include "http.h"

struct options {
    const char *model; /* "" = the embedded model */
    struct engine_options engine;
    struct http_options http;
    bool help;
};

extern const char usage[];

/* Complains about what it does not know, or what is out of range. */
bool options_parse(int argc, char **argv, struct options *options);

#endif
