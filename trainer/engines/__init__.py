"""What trains a model: the protocol that the trainer uses, and DeepSpeed as its implementation.

The rest of the trainer knows only `protocol.py`; only `deepspeed/` imports DeepSpeed. The other modules are for any
engine: AdamW, the moving average of the weights, memory that ranks share, trials.
"""
