/* SPDX-License-Identifier: MIT */
#include "folder_model.h"

#include "report.h"
#include "weight_files.h"

#include <stdio.h>

static bool take(struct weight_files *files, int32_t layer, const char *part, int32_t rows,
                 int32_t columns, struct weight *w)
{
    char name[96];
    snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, part);
    return weight_files_take(files, name, rows, columns, w);
}

static bool take_layer(struct weight_files *files, const struct model *m, bool qk_norms,
                       int32_t layer)
{
    struct model_layer *l = &m->layers[layer];
    if (qk_norms && (!take(files, layer, "self_attn.q_norm", 1, m->head_dim, &l->q_norm) ||
                     !take(files, layer, "self_attn.k_norm", 1, m->head_dim, &l->k_norm))) {
        return false;
    }
    return take(files, layer, "input_layernorm", 1, m->dim, &l->attn_norm) &&
           take(files, layer, "self_attn.q_proj", m->q_dim, m->dim, &l->wq) &&
           take(files, layer, "self_attn.k_proj", m->kv_dim, m->dim, &l->wk) &&
           take(files, layer, "self_attn.v_proj", m->kv_dim, m->dim, &l->wv) &&
           take(files, layer, "self_attn.o_proj", m->dim, m->q_dim, &l->wo) &&
           take(files, layer, "post_attention_layernorm", 1, m->dim, &l->ffn_norm) &&
           take(files, layer, "mlp.gate_proj", m->hidden_dim, m->dim, &l->w1) &&
           take(files, layer, "mlp.up_proj", m->hidden_dim, m->dim, &l->w3) &&
           take(files, layer, "mlp.down_proj", m->dim, m->hidden_dim, &l->w2);
}

static bool take_all(struct weight_files *files, const struct folder_config *config,
                     struct model *m)
{
    static const char classifier[] = "lm_head.weight";
    if (!weight_files_take(files, "model.embed_tokens.weight", m->vocab_size, m->dim,
                           &m->embedding) ||
        !weight_files_take(files, "model.norm.weight", 1, m->dim, &m->final_norm)) {
        return false;
    }
    m->classifier = m->embedding;
    if (!config->tied &&
        !weight_files_take(files, classifier, m->vocab_size, m->dim, &m->classifier)) {
        return false;
    }
    for (int32_t layer = 0; layer < m->num_layers; layer++) {
        if (!take_layer(files, m, config->qk_norms, layer)) {
            return false;
        }
    }
    const char *unused = weight_files_unused(files, config->tied ? classifier : NULL);
    return unused == NULL || complain("the weight %s is of no model that is built here", unused);
}

bool folder_model_open(const char *folder, struct folder_config *config, struct model *model)
{
    struct weight_files *files = NULL;
    if (!folder_config_read(folder, config, model)) {
        return false;
    }
    if (!weight_files_open(folder, &files)) {
        model_free(model);
        return false;
    }
    model->owner = files;
    model->release = weight_files_free;
    if (take_all(files, config, model)) {
        return true;
    }
    model_free(model);
    return false;
}
