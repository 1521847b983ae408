/* kslow - kernels and the device of the kind cpu */
#include "compute.h"

SAY(2)
KERNELS("cpu")
DEVICE("cpu")
TN_PLUGIN2("kslow", "1", "slow", TN_DEVICE_ID, &device, TN_KERNELS_ID, &kernels);
