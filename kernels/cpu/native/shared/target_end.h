/* target_end.h ends what target_avx2.h or target_avx512.h began. */
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
