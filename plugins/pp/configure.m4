TN_PLUGIN_SWITCH([pp], [pipeline parallelism])
