#define VAPP_VECTOR 256
#define VAPP_SET avx2
#include "../native/shared/target_avx2.h"
#include "body.h"
#include "../native/shared/target_end.h"
