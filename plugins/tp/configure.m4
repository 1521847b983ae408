TN_PLUGIN_SWITCH([tp], [tensor parallelism])
