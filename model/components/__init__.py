"""The parts that `model.*` and `loss` of a configuration select: fields, costs and limits of each.

torch is imported only when a part is built. To add a part, add a file here or a plugin: see docs/models.md.
"""
