	export @ENV@_SIZE=2 @ENV@_PORT=$$((20000 + $$$$ % 10000)); \
	@ENV@_RANK=1 $(TENON) train try.ini plugins.path=./@NAME@.so & \
	@ENV@_RANK=0 $(TENON) train try.ini plugins.path=./@NAME@.so && wait $$!
