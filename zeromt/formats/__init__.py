"""Models in the formats of other programs; every export is compared with the model itself."""
