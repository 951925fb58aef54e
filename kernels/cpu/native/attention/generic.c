#define VAPP_VECTOR 0
#include "attention_body.h"
