TN_PLUGIN_SWITCH([lion], [Lion])
