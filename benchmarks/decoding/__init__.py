"""How fast translating is beside others."""
