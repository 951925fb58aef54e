#define VAPP_VECTOR 256
#include "target_avx2.h"
#include "rows_body.h"
#include "target_end.h"
