#define VAPP_VECTOR 0
#include "state_body.h"
