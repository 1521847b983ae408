	$(TENON) train try.ini plugins.path=./@NAME@.so
