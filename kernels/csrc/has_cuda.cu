// This library holds the operators for CUDA.
#include "animegamer_kernels.h"

extern "C" int agk_has_cuda(void) { return 1; }
