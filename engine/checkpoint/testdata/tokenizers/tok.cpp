// tok VOCAB.gguf: reads texts from stdin, each as "N\n" and N bytes; writes ids on a line each.
#include "llama.h"
#include <cstdio>
#include <string>
#include <vector>
#include <iostream>
int main(int argc, char **argv) {
  llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
  auto p = llama_model_default_params(); p.vocab_only = true;
  auto m = llama_model_load_from_file(argv[1], p);
  if (!m) { fprintf(stderr, "cannot load %s\n", argv[1]); return 1; }
  auto v = llama_model_get_vocab(m);
  size_t n; std::string line;
  while (std::getline(std::cin, line)) {
    n = std::stoul(line);
    std::string t(n, 0); std::cin.read(&t[0], n); std::cin.get();
    std::vector<llama_token> ids(4 * n + 16);
    int k = llama_tokenize(v, t.data(), n, ids.data(), ids.size(), true, true);
    for (int i = 0; i < k; i++) printf("%d%s", ids[i], i + 1 < k ? " " : "");
    printf("\n");
  }
}
