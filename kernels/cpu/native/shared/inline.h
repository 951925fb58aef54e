/* inline.h: INLINE makes a function that is inlined at every call. */
#ifndef VAPP_CPU_INLINE_H
#define VAPP_CPU_INLINE_H

#define INLINE static inline __attribute__((always_inline))

#endif
