TN_PLUGIN_SWITCH([shard], [ZeRO 1 to 3])
