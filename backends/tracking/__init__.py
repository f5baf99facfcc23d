"""Sends the numbers of a run to MLflow, and reads those that TensorBoard's files hold."""
