"""Export of trained models for other programs; every export is compared with the model itself."""
