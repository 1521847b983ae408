TN_PLUGIN_SWITCH([env], [places from the launcher's variables])
