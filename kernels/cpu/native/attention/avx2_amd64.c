#define VAPP_VECTOR 256
#include "target_avx2.h"
#include "attention_body.h"
#include "target_end.h"
