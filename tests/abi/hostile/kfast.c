/* kfast - kernels for the device cpu, with a higher score */
#include "compute.h"

SAY(7)
KERNELS("cpu")
TN_PLUGIN("kfast", "1", "fast", TN_KERNELS_ID, &kernels);
