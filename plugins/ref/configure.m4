TN_PLUGIN_SWITCH([ref], [naive kernels in plain C, the oracle])
