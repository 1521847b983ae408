TN_PLUGIN_SWITCH([ep], [expert parallelism])
