TN_PLUGIN_SWITCH([adamw], [AdamW])
