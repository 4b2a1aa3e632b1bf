/* SPDX-License-Identifier: MIT
 *
 * A client in C++17, compiled with -Wall -Wextra -Wshadow -Werror: every object in a class whose
 * destructor ends it and has no use for a status. Prints what failed; exit 1. */
#include <cstdio>
#include <cstdlib>
#include <pagedkv.h>
#include <stdexcept>
#include <string>

namespace {

void must(pkv_status status)
{
    if (status != PKV_OK) {
        throw std::runtime_error(std::string(pkv_status_name(status)) + ": " + pkv_last_error());
    }
}

class cache {
public:
    explicit cache(const pkv_cache_config &config)
    {
        must(pkv_cache_create(&config, &handle_));
    }
    ~cache()
    {
        pkv_cache_destroy(handle_, true);
    }
    cache(const cache &) = delete;
    cache &operator=(const cache &) = delete;
    pkv_cache *get() const
    {
        return handle_;
    }

private:
    pkv_cache *handle_ = nullptr;
};

class sequence {
public:
    explicit sequence(pkv_cache *of) : cache_(of)
    {
        must(pkv_seq_create(cache_, nullptr, &handle_));
    }
    ~sequence()
    {
        pkv_seq_destroy(cache_, handle_);
    }
    sequence(const sequence &) = delete;
    sequence &operator=(const sequence &) = delete;
    const pkv_seq &get() const
    {
        return handle_;
    }

private:
    pkv_cache *cache_;
    pkv_seq handle_ = {};
};

/* A step that was not committed is dropped. */
class step {
public:
    step(pkv_cache *of, const pkv_batch &batch) : cache_(of)
    {
        must(pkv_step_begin(cache_, &batch, &handle_, nullptr));
    }
    ~step()
    {
        pkv_step_abort(cache_, handle_);
    }
    step(const step &) = delete;
    step &operator=(const step &) = delete;
    pkv_step get() const
    {
        return handle_;
    }

private:
    pkv_cache *cache_;
    pkv_step handle_ = {};
};

/* Keys are 0, so the output is the mean of the values 1 and 3. */
bool attends()
{
    pkv_group_config group = {};
    group.kv_heads = 1;
    group.k_width = 1;
    group.block_size = 4;
    group.num_blocks = 4;
    pkv_layer_config layer = {};
    layer.num_heads = 1;
    pkv_cache_config config = {};
    config.size = sizeof config;
    config.groups = &group;
    config.num_groups = 1;
    config.layers = &layer;
    config.num_layers = 1;
    config.max_seqs = 1;
    config.max_seq_len = 16;
    config.max_step_tokens = 4;
    config.num_threads = 1;
    const cache of(config);
    const sequence seq(of.get());
    const std::int32_t ids[] = {1, 2};
    const std::int32_t q_len = 2;
    pkv_batch batch = {};
    batch.size = sizeof batch;
    batch.seqs = &seq.get();
    batch.q_lens = &q_len;
    batch.num_rows = 1;
    batch.num_required_rows = 1;
    batch.token_ids = ids;
    const step open(of.get(), batch);
    pkv_step_view view = {};
    view.size = sizeof view;
    must(pkv_step_describe(of.get(), open.get(), 0, &view));
    const float zeros[] = {0, 0};
    const float values[] = {1, 3};
    float out[] = {-1, -1};
    pkv_layer_io io = {};
    io.size = sizeof io;
    io.q = zeros;
    io.k = zeros;
    io.v = values;
    io.out = out;
    must(pkv_step_attend(of.get(), open.get(), 0, &io));
    return view.num_tokens == 2 && out[0] == 1 && out[1] == 2;
}

} // namespace

int main()
{
    try {
        if (attends()) {
            std::puts("a client in C++: attends, and its destructors end everything");
            return EXIT_SUCCESS;
        }
        std::fputs("a client in C++: wrong output\n", stderr);
    } catch (const std::exception &failed) {
        std::fprintf(stderr, "a client in C++: %s\n", failed.what());
    }
    return EXIT_FAILURE;
}
