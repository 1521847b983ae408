/* kother - kernels and a device of another kind */
#include "compute.h"

SAY(9)
KERNELS("toaster")
DEVICE("toaster")
TN_PLUGIN2("kother", "1", "for another device", TN_DEVICE_ID, &device, TN_KERNELS_ID, &kernels);
