#define VAPP_VECTOR 256
#include "target_avx2.h"
#include "limits_body.h"
#include "target_end.h"
