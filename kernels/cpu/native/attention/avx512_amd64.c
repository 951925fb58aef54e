#define VAPP_VECTOR 512
#include "target_avx512.h"
#include "attention_body.h"
#include "target_end.h"
