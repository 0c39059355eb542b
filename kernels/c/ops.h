#ifndef HA_KERNELS_C_OPS_H
#define HA_KERNELS_C_OPS_H

#include "kernels/table.h"

HA_KERNELS_DECLARE(c)

#endif
