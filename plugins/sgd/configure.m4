TN_PLUGIN_SWITCH([sgd], [stochastic gradient descent])
