TN_PLUGIN_SWITCH([cp], [context parallelism])
