/* SPDX-License-Identifier: MIT */
#include "folder_config.h"

#include "json_file.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_CONFIG = 4 << 20 };

enum architecture { LLAMA, MISTRAL, QWEN3 };

/* The file while it is read. */
struct source {
    const char *path;
    const cJSON *root;
    enum architecture architecture;
};

/* ---- what the model is ---------------------------------------------------------------------- */

static bool take_architecture(struct source *in)
{
    static const char *const names[] = {"LlamaForCausalLM", "MistralForCausalLM",
                                        "Qwen3ForCausalLM"};
    const cJSON *list = json_file_field(in->root, "architectures");
    const cJSON *item = cJSON_IsArray(list) ? list->child : NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (json_file_says(item, names[i])) {
            in->architecture = (enum architecture)i;
            return true;
        }
    }
    return complain("%s: architectures is %s, not LlamaForCausalLM, MistralForCausalLM or "
                    "Qwen3ForCausalLM",
                    in->path, cJSON_IsString(item) ? item->valuestring : "missing");
}

static bool refuse_true(const struct source *in, const char *name)
{
    bool value = false;
    return json_file_flag(in->path, in->root, name, &value) &&
           (!value || complain("%s: %s is true, which is not built here", in->path, name));
}

static bool check_unsupported(const struct source *in)
{
    const cJSON *activation = json_file_field(in->root, "hidden_act");
    double rotary = 1;
    if (activation != NULL && !json_file_says(activation, "silu")) {
        return complain("%s: hidden_act is not silu", in->path);
    }
    if (json_file_field(in->root, "quantization_config") != NULL) {
        return complain("%s: quantization_config: weights are f32, f16 or bf16 here", in->path);
    }
    if (!json_file_positive(in->path, in->root, "partial_rotary_factor", &rotary) || rotary != 1) {
        return complain("%s: partial_rotary_factor is not 1", in->path);
    }
    return refuse_true(in, "attention_bias") && refuse_true(in, "mlp_bias");
}

/* ---- shape ---------------------------------------------------------------------------------- */

/* The fields that follow from others are the last two. */
static bool take_integers(const struct source *in, struct model *m)
{
    const struct {
        const char *name;
        int32_t high;
        int32_t *value;
    } rows[] = {
        {"hidden_size", MODEL_MAX_DIM, &m->dim},
        {"intermediate_size", MODEL_MAX_DIM, &m->hidden_dim},
        {"num_hidden_layers", MODEL_MAX_LAYERS, &m->num_layers},
        {"num_attention_heads", MODEL_MAX_DIM, &m->num_heads},
        {"vocab_size", MODEL_MAX_VOCAB, &m->vocab_size},
        {"max_position_embeddings", INT32_MAX, &m->seq_len},
        {"num_key_value_heads", MODEL_MAX_DIM, &m->kv_heads},
        {"head_dim", MODEL_MAX_DIM, &m->head_dim},
    };
    const size_t count = sizeof rows / sizeof rows[0];
    for (size_t i = 0; i < count; i++) {
        if (!json_file_integer(in->path, in->root, rows[i].name, 1, rows[i].high, rows[i].value)) {
            return false;
        }
        if (i < count - 2 && *rows[i].value == 0) {
            return complain("%s: %s is missing", in->path, rows[i].name);
        }
    }
    if (m->kv_heads == 0) {
        m->kv_heads = m->num_heads;
    }
    if (m->head_dim == 0 && m->dim % m->num_heads == 0) {
        m->head_dim = m->dim / m->num_heads;
    }
    return m->head_dim > 0 || complain("%s: head_dim is missing, and hidden_size %d is no multiple "
                                       "of num_attention_heads %d",
                                       in->path, m->dim, m->num_heads);
}

/* Positions whose rope tables are too large are left out. */
static void bound_positions(struct model *m)
{
    const size_t bytes = (size_t)m->head_dim * sizeof(float);
    const size_t most = MODEL_MAX_ROPE_BYTES / bytes;
    if ((size_t)m->seq_len > most) {
        m->seq_len = (int32_t)most;
    }
    if (m->seq_len > MODEL_MAX_SEQ_LEN) {
        m->seq_len = MODEL_MAX_SEQ_LEN;
    }
}

/* ---- rope ----------------------------------------------------------------------------------- */

/* Newer files have all of it in rope_parameters. */
static const cJSON *rope_of(const struct source *in)
{
    const cJSON *item = json_file_field(in->root, "rope_parameters");
    return item != NULL ? item : json_file_field(in->root, "rope_scaling");
}

static bool take_theta(const struct source *in, struct model *m)
{
    m->rope_theta = 10000;
    return json_file_positive(in->path, in->root, "rope_theta", &m->rope_theta) &&
           json_file_positive(in->path, rope_of(in), "rope_theta", &m->rope_theta);
}

/* Llama 3's scaling: long waves are slowed by `factor`, short ones stay, and those between move
 * from one to the other. */
struct llama3_rope {
    double factor, low, high, original;
};

static double scale(const struct llama3_rope *rope, double frequency)
{
    const double turns = rope->original * frequency / (2 * 3.14159265358979323846);
    if (turns < rope->low) {
        return frequency / rope->factor;
    }
    if (turns > rope->high) {
        return frequency;
    }
    const double share = (turns - rope->low) / (rope->high - rope->low);
    return (1 - share) * frequency / rope->factor + share * frequency;
}

static bool take_llama3(const struct source *in, const cJSON *item, struct llama3_rope *rope)
{
    *rope = (struct llama3_rope){0, 0, 0, 0};
    if (!json_file_positive(in->path, item, "factor", &rope->factor) ||
        !json_file_positive(in->path, item, "low_freq_factor", &rope->low) ||
        !json_file_positive(in->path, item, "high_freq_factor", &rope->high) ||
        !json_file_positive(in->path, item, "original_max_position_embeddings", &rope->original)) {
        return false;
    }
    if (rope->factor < 1 || rope->original < 1 || rope->high <= rope->low || rope->low <= 0) {
        return complain("%s: rope_scaling of type llama3 with factor %g, low_freq_factor %g, "
                        "high_freq_factor %g, original_max_position_embeddings %g",
                        in->path, rope->factor, rope->low, rope->high, rope->original);
    }
    return true;
}

static bool scale_rope(const struct source *in, struct model *m)
{
    const cJSON *item = rope_of(in);
    const cJSON *type = json_file_field(item, "rope_type");
    struct llama3_rope rope;
    if (type == NULL) {
        type = json_file_field(item, "type");
    }
    if (item == NULL || type == NULL || json_file_says(type, "default")) {
        return item == NULL || json_file_field(item, "factor") == NULL ||
               complain("%s: rope_scaling without a type", in->path);
    }
    if (!json_file_says(type, "llama3")) {
        return complain("%s: rope_scaling of type %s is not built here; default and llama3 are",
                        in->path, cJSON_IsString(type) ? type->valuestring : "?");
    }
    if (!take_llama3(in, item, &rope)) {
        return false;
    }
    for (int32_t i = 0; i < m->head_dim / 2; i++) {
        model_set_frequency(m, i, scale(&rope, model_frequency(m, i)));
    }
    return true;
}

/* ---- windows -------------------------------------------------------------------------------- */

/* layer_types says it of each layer. */
static bool set_listed_windows(const struct source *in, const cJSON *types, int32_t window,
                               struct model *m)
{
    if (!cJSON_IsArray(types) || cJSON_GetArraySize(types) != m->num_layers) {
        return complain("%s: layer_types is no list of %d", in->path, m->num_layers);
    }
    struct model_layer *layer = m->layers;
    const cJSON *type = NULL;
    cJSON_ArrayForEach(type, types)
    {
        const bool windowed = json_file_says(type, "sliding_attention");
        if (!windowed && !json_file_says(type, "full_attention")) {
            return complain("%s: layer_types has other types than full_attention and "
                            "sliding_attention",
                            in->path);
        }
        if (windowed && window == 0) {
            return complain("%s: layer_types has sliding_attention, and there is no "
                            "sliding_window",
                            in->path);
        }
        layer->window = windowed ? window : 0;
        layer++;
    }
    return true;
}

/* Mistral: all layers. Qwen3: where use_sliding_window says so, layers from max_window_layers on.
 * Llama: none. */
static bool set_windows(const struct source *in, struct model *m)
{
    int32_t window = 0, first = 28;
    bool use = in->architecture != QWEN3;
    if (in->architecture == LLAMA) {
        return true;
    }
    if (!json_file_integer(in->path, in->root, "sliding_window", 1, INT32_MAX, &window) ||
        !json_file_integer(in->path, in->root, "max_window_layers", 0, INT32_MAX, &first) ||
        !json_file_flag(in->path, in->root, "use_sliding_window", &use)) {
        return false;
    }
    window = use ? window : 0;
    const cJSON *types = json_file_field(in->root, "layer_types");
    if (types != NULL) {
        return set_listed_windows(in, types, window, m);
    }
    for (int32_t layer = in->architecture == QWEN3 ? first : 0; layer < m->num_layers; layer++) {
        m->layers[layer].window = window;
    }
    return true;
}

/* ---- where a text ends ---------------------------------------------------------------------- */

static bool add_end(const struct source *in, const struct model *m, const cJSON *item,
                    struct folder_config *config)
{
    const double id = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (id != floor(id) || id < 0 || id >= m->vocab_size) {
        return complain("%s: eos_token_id has no id below %d", in->path, m->vocab_size);
    }
    for (int32_t i = 0; i < config->num_ends; i++) {
        if (config->ends[i] == (int32_t)id) {
            return true;
        }
    }
    if (config->num_ends == MAX_END_IDS) {
        return complain("%s: eos_token_id has more than %d ids", in->path, MAX_END_IDS);
    }
    config->ends[config->num_ends] = (int32_t)id;
    config->num_ends++;
    return true;
}

/* A number or a list of them. */
static bool take_ends(const struct source *in, const struct model *m, struct folder_config *config)
{
    const cJSON *item = json_file_field(in->root, "eos_token_id");
    if (item == NULL || !cJSON_IsArray(item)) {
        return item == NULL || add_end(in, m, item, config);
    }
    const cJSON *each = NULL;
    cJSON_ArrayForEach(each, item)
    {
        if (!add_end(in, m, each, config)) {
            return false;
        }
    }
    return true;
}

static bool take_generation_config(const char *folder, const struct model *m,
                                   struct folder_config *config)
{
    char *path = json_file_path(folder, "generation_config.json");
    if (path == NULL) {
        return false;
    }
    bool ok = true;
    if (access(path, F_OK) == 0) {
        cJSON *root = json_file_read(path, MAX_CONFIG);
        const struct source in = {.path = path, .root = root};
        ok = root != NULL && take_ends(&in, m, config);
        cJSON_Delete(root);
    }
    free(path);
    return ok;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static bool create(struct source *in, const char *folder, struct folder_config *config,
                   struct model *m)
{
    double eps = 1e-6;
    if (!take_architecture(in) || !check_unsupported(in) || !take_integers(in, m) ||
        !json_file_positive(in->path, in->root, "rms_norm_eps", &eps) || !take_theta(in, m) ||
        !json_file_flag(in->path, in->root, "tie_word_embeddings", &config->tied)) {
        return false;
    }
    bound_positions(m);
    config->qk_norms = in->architecture == QWEN3;
    m->norm_eps = (float)eps;
    m->begin_id = -1;
    m->end_id = -1;
    m->rotary_mode = PKV_ROTARY_HALF_SPLIT;
    if (!model_check_shape(in->path, m) || !take_ends(in, m, config) ||
        !take_generation_config(folder, m, config) || !model_create(in->path, m)) {
        return false;
    }
    m->end_id = config->num_ends > 0 ? config->ends[0] : -1;
    return scale_rope(in, m) && set_windows(in, m);
}

bool folder_config_read(const char *folder, struct folder_config *config, struct model *model)
{
    memset(config, 0, sizeof *config);
    memset(model, 0, sizeof *model);
    char *path = json_file_path(folder, "config.json");
    if (path == NULL) {
        return false;
    }
    cJSON *root = json_file_read(path, MAX_CONFIG);
    struct source in = {.path = path, .root = root};
    const bool ok = root != NULL && create(&in, folder, config, model);
    cJSON_Delete(root);
    free(path);
    if (!ok) {
        model_free(model);
    }
    return ok;
}
