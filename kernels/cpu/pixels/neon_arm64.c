#define VAPP_VECTOR 128
#define VAPP_SET neon
#include "../native/shared/target_neon.h"
#include "body.h"
#include "../native/shared/target_end.h"
