"""Reading what Megatron-LM prints."""
