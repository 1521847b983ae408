/* plugin.c - the plugins isle and reef. */
#include "isle.h"

#ifdef REEF
TN_PLUGIN_(ISLE, "1.0", "a device with memory of its own, for tests", TN_DEVICE_ID " " TN_KERNELS_ID " " TN_DEVICE_CAPTURE_ID, NULL, NULL,
           {TN_DEVICE_ID, &isle_device}, {TN_KERNELS_ID, &isle_kernels}, {TN_DEVICE_CAPTURE_ID, &isle_capture});
#else
TN_PLUGIN2(ISLE, "1.0", "a device with memory of its own, for tests", TN_DEVICE_ID, &isle_device, TN_KERNELS_ID, &isle_kernels);
#endif
