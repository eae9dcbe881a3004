"""`make install` and `make wheels` beside stand-ins of a registry, and what a wheel holds."""
