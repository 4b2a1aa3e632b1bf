/* SPDX-License-Identifier: MIT
 *
 * demo.h: the check that needs no files. */
#ifndef STORY_DEMO_H
#define STORY_DEMO_H

#include "options.h"

/* Decodes the same requests with a random model three ways - naive, paged, continuous - and says on
 * stdout what happened. False when they do not emit the same tokens. */
bool demo(const struct options *options);

#endif
