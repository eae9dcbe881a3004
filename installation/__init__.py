"""What `make install` and `make wheels` do: .venv, and the wheels for a machine that reaches no registry.

It runs before the environment exists, so it imports the standard library alone and nothing of the other packages. No
wheel holds it. Begin with __main__.py, then environment.py.
"""
