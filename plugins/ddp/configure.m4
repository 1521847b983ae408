TN_PLUGIN_SWITCH([ddp], [data parallelism])
