#define VAPP_VECTOR 0
#include "glu_body.h"
