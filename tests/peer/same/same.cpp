// same runs models with llama.cpp for a comparison of logits and tokens. For each line on standard
// input it does one thing and answers with one line:
//
//   logits FILE PROMPT STEPS OUT          a prompt of PROMPT fixed tokens, then STEPS greedy ones
//   logits FILE PROMPT STEPS OUT TOKENS   the same tokens as in TOKENS, the OUT of another file
//   tokens FILE TEXT OUT                  the ids of the text of a file
//
// OUT of logits: int32 vocabulary, PROMPT, STEPS; PROMPT+STEPS int32 tokens; a row of float32 logits
// after each of them, all little-endian. OUT of tokens: int32 ids. Keys and values are float32 and
// weights are not repacked. The prompt's token i is (7·i² + 13·i + 5) mod vocabulary. The last of the
// greedy tokens is fed too, so that each token has a row.
#include "llama.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

static std::string logits(const std::string & file, int prompt, int steps, const std::string & out, const std::string & given) {
    llama_model_params m = llama_model_default_params();
    m.use_extra_bufts = false;
    llama_model * model = llama_model_load_from_file(file.c_str(), m);
    if (!model) return "the file does not load";
    llama_context_params c = llama_context_default_params();
    c.n_ctx = c.n_batch = std::max(256, prompt + steps);
    c.n_ubatch = 256;
    c.n_threads = c.n_threads_batch = 1;
    c.type_k = c.type_v = GGML_TYPE_F32;
    c.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context * ctx = llama_init_from_model(model, c);
    if (!ctx) { llama_model_free(model); return "no context"; }
    const int32_t vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    std::vector<llama_token> ids;
    std::vector<float> rows;
    for (int64_t i = 0; i < prompt; i++) ids.push_back(static_cast<llama_token>((7 * i * i + 13 * i + 5) % vocab));
    if (!given.empty()) {
        std::ifstream in(given, std::ios::binary);
        ids.resize(prompt + steps);
        in.seekg(3 * sizeof(int32_t));
        if (!in.read(reinterpret_cast<char *>(ids.data()), ids.size() * sizeof ids[0])) return "the given tokens cannot be read";
    }
    llama_batch batch = llama_batch_init(prompt, 0, 1);
    std::string failure;
    for (int at = 0; failure.empty() && at < prompt + steps; at += batch.n_tokens) {
        batch.n_tokens = at == 0 ? prompt : 1;
        for (int i = 0; i < batch.n_tokens; i++) {
            batch.token[i] = ids[at + i];
            batch.pos[i] = at + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        if (llama_decode(ctx, batch) != 0) { failure = "a step is refused"; break; }
        const float * row = nullptr;
        for (int i = 0; i < batch.n_tokens; i++) {
            row = llama_get_logits_ith(ctx, i);
            rows.insert(rows.end(), row, row + vocab);
        }
        int best = 0;
        for (int i = 1; i < vocab; i++) if (row[i] > row[best]) best = i;
        if (given.empty()) ids.push_back(best);
    }
    llama_batch_free(batch);
    llama_free(ctx);
    llama_model_free(model);
    if (!failure.empty()) return failure;
    ids.resize(prompt + steps);
    std::ofstream f(out, std::ios::binary);
    const int32_t head[3] = {vocab, prompt, steps};
    f.write(reinterpret_cast<const char *>(head), sizeof head);
    f.write(reinterpret_cast<const char *>(ids.data()), ids.size() * sizeof ids[0]);
    f.write(reinterpret_cast<const char *>(rows.data()), rows.size() * sizeof rows[0]);
    return f.flush() ? "" : "its output cannot be written";
}

static std::string tokens(const std::string & file, const std::string & text, const std::string & out) {
    llama_model_params m = llama_model_default_params();
    m.vocab_only = true;
    llama_model * model = llama_model_load_from_file(file.c_str(), m);
    if (!model) return "the file does not load";
    std::ifstream in(text, std::ios::binary);
    std::stringstream whole;
    whole << in.rdbuf();
    const std::string s = whole.str();
    std::vector<llama_token> ids(s.size() + 16);
    const int n = llama_tokenize(llama_model_get_vocab(model), s.data(), s.size(), ids.data(), ids.size(), true, false);
    llama_model_free(model);
    if (n < 0) return "the text has more tokens than bytes";
    std::ofstream f(out, std::ios::binary);
    f.write(reinterpret_cast<const char *>(ids.data()), n * sizeof ids[0]);
    return f.flush() ? "" : "its output cannot be written";
}

int main() {
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
    }, nullptr);
    llama_backend_init();
    std::string line;
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        std::string what, file, text, out, given, said;
        int prompt = 0, steps = 0;
        words >> what >> file;
        if (what == "logits" && words >> prompt >> steps >> out && prompt > 0 && steps > 0) {
            words >> given;
            said = logits(file, prompt, steps, out, given);
        }
        else if (what == "tokens" && words >> text >> out) said = tokens(file, text, out);
        else said = "not understood";
        std::cout << (said.empty() ? "ok" : said) << std::endl;
    }
    return 0;
}
