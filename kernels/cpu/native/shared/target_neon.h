/* target_neon.h: the functions that follow are compiled for VAPP_NEON, until target_end.h. The
 * compiler always has NEON; only the level of optimization of gcc is raised. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((annotate("neon"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif
