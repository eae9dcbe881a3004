"""What `model.*` and `loss` of a configuration choose: fields, costs and limits of each part, beside the equations.

Without torch until a part is built. Another one is one more file here, or a plugin: see docs/components.md.
"""
