#define VAPP_VECTOR 0
#include "body.h"
