#define VAPP_VECTOR 256
#include "../shared/target_avx2.h"
#include "body.h"
#include "../shared/target_end.h"
