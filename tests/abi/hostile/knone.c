/* knone - kernels for the device cpu that are of no use on this one */
#include "compute.h"

SAY(0)
KERNELS("cpu")
TN_PLUGIN("knone", "1", "needs another cpu", TN_KERNELS_ID, &kernels);
