"""The way out to servers: a trained model as other programs load it, each export held against the model itself."""
