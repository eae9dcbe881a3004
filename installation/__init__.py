"""What `make install` and `make wheels` cannot ask pip: which build of torch fits, and what a site already has.

It runs before the environment exists, so it imports the standard library alone and nothing of the other packages. No
wheel holds it. The commands that install are pip's own, in the Makefile.
"""
