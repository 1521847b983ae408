TN_PLUGIN_SWITCH([adam], [Adam])
