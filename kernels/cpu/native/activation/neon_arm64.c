#define VAPP_VECTOR 128
#include "../shared/target_neon.h"
#include "body.h"
#include "../shared/target_end.h"
