/* SPDX-License-Identifier: MIT
 *
 * folder_model.h: the model of a folder with config.json and safetensors. Its weights are the
 * mapped files: nothing is copied, and pages are read from disk as they are first used. */
#ifndef SERVER_FOLDER_MODEL_H
#define SERVER_FOLDER_MODEL_H

#include "folder_config.h"

/* Complains when it fails. Each weight that the configuration names must be there in its shape, and
 * none beside them. Their numbers are not looked at: a request whose logits are not finite fails
 * when it is run. */
bool folder_model_open(const char *folder, struct folder_config *config, struct model *model);

#endif
