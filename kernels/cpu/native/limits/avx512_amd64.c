#define VAPP_VECTOR 512
#include "target_avx512.h"
#include "limits_body.h"
#include "target_end.h"
