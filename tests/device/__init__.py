"""GPU paths on a pseudo device."""
