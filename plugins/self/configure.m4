TN_PLUGIN_SWITCH([self], [the communicator of one process])
