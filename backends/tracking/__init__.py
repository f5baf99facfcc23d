"""Where the numbers of a run go besides the screen, and where else they can be read: MLflow, TensorBoard."""
