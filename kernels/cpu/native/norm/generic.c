#define VAPP_VECTOR 0
#include "rows_body.h"
