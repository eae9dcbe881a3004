"""`zeromt export`: writes a trained model for another program, with a model card."""
