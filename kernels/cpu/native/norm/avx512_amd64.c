#define VAPP_VECTOR 512
#include "target_avx512.h"
#include "rows_body.h"
#include "target_end.h"
