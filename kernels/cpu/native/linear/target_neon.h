/* target_neon.h: vectors and sizes of Linear's kernel for VAPP_NEON. */
#define FN /* the compiler always has NEON */
#define TILE 6
#define SLIM 2 /* 24 registers of sums, 4 of weights and an x take 29 of 32 */
#define WIDE_ROWS 2
#define PAIR 1 /* panels of one row at once */
#include "vec128.h"
