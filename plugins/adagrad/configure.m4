TN_PLUGIN_SWITCH([adagrad], [AdaGrad])
