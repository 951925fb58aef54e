#define VAPP_VECTOR 256
#include "target_avx2.h"
#include "glu_body.h"
#include "target_end.h"
