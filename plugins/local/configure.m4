TN_PLUGIN_SWITCH([local], [threads as ranks, for tests])
