#define VAPP_VECTOR 512
#include "../shared/target_avx512.h"
#include "body.h"
#include "../shared/target_end.h"
