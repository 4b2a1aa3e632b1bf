/* SPDX-License-Identifier: MIT
 *
 * channel.h: messages between the processes, over a socket of one machine: four numbers, then the
 * tokens of a text. */
#ifndef DISAGGREGATED_CHANNEL_H
#define DISAGGREGATED_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_TEXT = 1024 };

/* A request on its way. */
struct message {
    int32_t request;    /* which */
    int32_t num_prompt; /* of its tokens */
    int32_t num_tokens; /* the prompt, then what was generated */
    int32_t num_cached; /* tokens of the prompt that were hits */
    int32_t num_loaded; /* and of them, those that came from the tier */
    int32_t tokens[MAX_TEXT];
};

/* False when the other process is gone, or what comes is no message. */
bool channel_send(int socket, const struct message *message);
bool channel_receive(int socket, struct message *message);

#endif
