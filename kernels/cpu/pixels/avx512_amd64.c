#define VAPP_VECTOR 512
#define VAPP_SET avx512
#include "../native/shared/target_avx512.h"
#include "body.h"
#include "../native/shared/target_end.h"
