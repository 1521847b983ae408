TN_PLUGIN_SWITCH([rmsprop], [RMSProp])
