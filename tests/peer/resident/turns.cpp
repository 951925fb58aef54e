// turns loads a model with llama.cpp once. For each line on standard input it decodes N tokens
// of one stream and prints the tokens per second as a line of JSON. Like the generation test
// of llama-bench, it clears the context and decodes random tokens.
//
//   turns FILE THREADS N default|tuned
//
// tuned: flash attention is on, and weights are read instead of mapped.
#include "llama.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

int main(int argc, char ** argv) {
    if (argc != 5) {
        fprintf(stderr, "turns FILE THREADS N default|tuned\n");
        return 2;
    }
    const int threads = atoi(argv[2]), n = atoi(argv[3]);
    const bool tuned = strcmp(argv[4], "tuned") == 0;
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
    }, nullptr);
    llama_backend_init();
    llama_model_params m = llama_model_default_params();
    if (tuned) m.load_mode = LLAMA_LOAD_MODE_NONE;
    llama_model * model = llama_model_load_from_file(argv[1], m);
    if (!model) {
        fprintf(stderr, "turns: %s does not load\n", argv[1]);
        return 1;
    }
    llama_context_params c = llama_context_default_params();
    c.n_ctx = n;
    c.n_threads = c.n_threads_batch = threads;
    if (tuned) c.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    llama_context * ctx = llama_init_from_model(model, c);
    if (!ctx) {
        fprintf(stderr, "turns: no context of %d tokens\n", n);
        return 1;
    }
    const llama_vocab * vocab = llama_model_get_vocab(model);
    const int vocabulary = llama_vocab_n_tokens(vocab);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        llama_memory_clear(llama_get_memory(ctx), false);
        llama_token token = rand() % vocabulary;
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < n; i++) {
            if (llama_decode(ctx, llama_batch_get_one(&token, 1)) != 0) {
                fprintf(stderr, "turns: token %d of %d is refused\n", i, n);
                return 1;
            }
            llama_synchronize(ctx);
            token = rand() % vocabulary;
        }
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        printf("{\"decode\": %.4f}\n", n / took.count());
        fflush(stdout);
    }
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}
