"""Every command with odd arguments, and on forged files."""
