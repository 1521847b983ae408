TN_PLUGIN_SWITCH([dir], [places from TENON_RANK, the address of rank 0 through a shared directory])
