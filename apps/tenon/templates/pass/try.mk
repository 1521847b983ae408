	$(TENON) verify try.ini plugins.path=./@NAME@.so --ranks 2
