#define VAPP_VECTOR 0
#include "sample_body.h"
