/* device.c - host memory as the device cpu: what kit_device.h gives, as it is. */
#define _DEFAULT_SOURCE                          /* madvise */
#include <tenon/kit_device.h>
#include "ref.h"

const struct tn_device_api tn_ref_device = TN_KIT_DEVICE("cpu", tn_kit_device_probe);
