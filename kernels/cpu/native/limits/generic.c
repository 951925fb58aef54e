#define VAPP_VECTOR 0
#include "limits_body.h"
