/* inline.h: INLINE functions are inlined at every call. */
#ifndef VAPP_CPU_INLINE_H
#define VAPP_CPU_INLINE_H

#define INLINE static inline __attribute__((always_inline))

#endif
